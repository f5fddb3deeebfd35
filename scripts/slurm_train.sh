#!/usr/bin/env bash
# Trains on one or more nodes under Slurm. Submit it in the directory of the repository, after `prepare`:
#
#   sbatch --nodes 2 --gpus-per-node 8 --time 12:00:00 scripts/slurm_train.sh configs/x.yaml [key=value …]
#
# Memory, CPUs, partition and account are options of sbatch, too. To use another interpreter than .venv/bin/python, set
# PYTHON. data_dir and run_dir must be on a disk that all nodes share. Five minutes before the time limit, training saves
# a checkpoint (torchrun gives it 30 seconds for this), and the job is queued again and then resumes.

#SBATCH --job-name transformer-mt
#SBATCH --ntasks-per-node 1
#SBATCH --requeue
#SBATCH --open-mode append
# Not TERM, because scancel sends TERM, and a cancelled job must not be queued again.
#SBATCH --signal B:USR1@300

set -euo pipefail
: "${1:?give a configuration: sbatch … scripts/slurm_train.sh configs/x.yaml}"
# Slurm runs a copy of this file, so the path of the other file starts at the directory of the repository.
stage=train
source scripts/slurm_ranks.sh
