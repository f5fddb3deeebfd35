#!/usr/bin/env bash
# Translates a file on one or more nodes under Slurm, with a process for each GPU. Submit it in the directory of the
# repository:
#
#   sbatch --nodes 2 --gpus-per-node 8 --time 12:00:00 scripts/slurm_translate.sh MODEL_DIR \
#       --input mono.de.gz --output mono.en.gz sampling=true [key=value …]
#
# Memory, CPUs, partition and account are options of sbatch, too. To use another interpreter than .venv/bin/python, set
# PYTHON. The model, the input and the output must be on a disk that all nodes share. Two minutes before the time limit,
# the job is queued again and then resumes. Without GPUs there is a process for each node, with a worker for each core.
# You may resume with another number of nodes.

#SBATCH --job-name transformer-mt-translate
#SBATCH --ntasks-per-node 1
#SBATCH --requeue
#SBATCH --open-mode append
# Not TERM, because scancel sends TERM, and a cancelled job must not be queued again.
#SBATCH --signal B:USR1@120

set -euo pipefail
: "${1:?give a model: sbatch … scripts/slurm_translate.sh MODEL_DIR --input FILE --output FILE}"
# Slurm runs a copy of this file, so the path of the other file starts at the directory of the repository.
stage=translate
source scripts/slurm_ranks.sh
