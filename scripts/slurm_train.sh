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
: "${SLURM_JOB_ID:?submit this script by sbatch, as its first lines say}"

first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
processes=${SLURM_GPUS_ON_NODE:-1}

# With a store of addresses for all restarts, ranks would look for each other at the addresses of killed ranks.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
torchrun=(
    "${PYTHON:-.venv/bin/python}" -m torch.distributed.run
    --nnodes "$SLURM_JOB_NUM_NODES"
    --nproc-per-node "$processes"
    --rdzv-backend c10d
    --rdzv-endpoint "$first_node:$((20000 + SLURM_JOB_ID % 10000))" # jobs that share a node have different ports
    --rdzv-id "$SLURM_JOB_ID"
    --max-restarts 3 # if a process fails, all processes start again and resume
)

# The signal goes to the job's steps, not to srun: on SIGTERM, srun kills the steps at once.
time_is_short=
trap 'time_is_short=yes; scancel --signal=TERM "$SLURM_JOB_ID"' USR1

# srun does not inherit --cpus-per-task. It runs in the background, because bash delays a trap until a foreground command
# ends.
srun --nodes "$SLURM_JOB_NUM_NODES" --ntasks-per-node 1 ${SLURM_CPUS_PER_TASK:+--cpus-per-task "$SLURM_CPUS_PER_TASK"} \
    "${torchrun[@]}" -m transformer_mt.train "$@" &
status=0
wait $! || status=$?
if [[ $time_is_short ]]; then # the signal has ended only the `wait`, not the stage
    status=0
    wait $! || status=$?
fi

if [[ $time_is_short && $status -ne 0 ]]; then
    if scontrol requeue "$SLURM_JOB_ID"; then
        exit 0
    fi
    printf 'This job cannot be queued again. To resume: sbatch --nodes %q' "$SLURM_JOB_NUM_NODES"
    printf ' %q' ${SLURM_GPUS_ON_NODE:+--gpus-per-node "$SLURM_GPUS_ON_NODE"} scripts/slurm_train.sh "$@"
    echo
fi
exit "$status"
