#!/usr/bin/env bash
# Translate a file on one or more nodes under Slurm, a process for each GPU, from the directory of the repository:
#
#   sbatch --nodes 2 --gpus-per-node 8 --time 12:00:00 scripts/slurm_translate.sh MODEL_DIR \
#       --input mono.de.gz --output mono.en.gz sampling=true [key=value …]
#
# Memory, CPUs, partition and account are options of sbatch, likewise. PYTHON names another interpreter than
# .venv/bin/python. The model, the input and the output have to lie where all nodes see them. Two minutes before the time
# limit the job goes back into the queue, to go on from there. Without GPUs there is a process for each node, with a
# worker for each core; the same command may go on with another number of nodes.

#SBATCH --job-name transformer-mt-translate
#SBATCH --ntasks-per-node 1
#SBATCH --requeue
#SBATCH --open-mode append
# Not TERM: that is scancel's, and who cancels a job does not want it back.
#SBATCH --signal B:USR1@120

set -euo pipefail
: "${1:?name a model: sbatch … scripts/slurm_translate.sh MODEL_DIR --input FILE --output FILE}"
# Slurm runs a copy of this file, so what lies beside it is found from the directory of the repository.
stage=translate
source scripts/slurm_ranks.sh
