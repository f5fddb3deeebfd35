#!/usr/bin/env bash
# Train on one or more nodes under Slurm, from the directory of the repository, after `prepare`:
#
#   sbatch --nodes 2 --gpus-per-node 8 --time 12:00:00 scripts/slurm_train.sh configs/x.yaml [key=value …]
#
# Memory, CPUs, partition and account are options of sbatch, likewise. PYTHON names another interpreter than
# .venv/bin/python. data_dir and run_dir have to lie where all nodes see them. Five minutes before the time limit
# training saves, and the job goes back into the queue, to go on from there: torchrun leaves it 30 seconds for that.

#SBATCH --job-name transformer-mt
#SBATCH --ntasks-per-node 1
#SBATCH --requeue
#SBATCH --open-mode append
# Not TERM: that is scancel's, and who cancels a job does not want it back.
#SBATCH --signal B:USR1@300

set -euo pipefail
: "${1:?name a configuration: sbatch … scripts/slurm_train.sh configs/x.yaml}"
# Slurm runs a copy of this file, so what lies beside it is found from the directory of the repository.
stage=train
source scripts/slurm_ranks.sh
