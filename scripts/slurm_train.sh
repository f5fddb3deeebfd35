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

: "${SLURM_JOB_ID:?submit this script by sbatch, as its first lines say}"
: "${1:?name a configuration: sbatch … scripts/slurm_train.sh configs/x.yaml}"

first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
processes=${SLURM_GPUS_ON_NODE:-1}

torchrun=(
    "${PYTHON:-.venv/bin/python}" -m torch.distributed.run
    --nnodes "$SLURM_JOB_NUM_NODES"
    --nproc-per-node "$processes"
    --rdzv-backend c10d
    --rdzv-endpoint "$first_node:$((20000 + SLURM_JOB_ID % 10000))" # jobs that share a node have a port each
    --rdzv-id "$SLURM_JOB_ID"
    --max-restarts 3 # if a process fails, all begin again from the newest checkpoint
)

# The steps are signalled, and not srun: on SIGTERM srun kills them at once.
time_is_short=
trap 'time_is_short=yes; scancel --signal=TERM "$SLURM_JOB_ID"' USR1

# srun does not take over --cpus-per-task by itself. In the background, because a trap waits for the foreground.
srun --nodes "$SLURM_JOB_NUM_NODES" --ntasks-per-node 1 ${SLURM_CPUS_PER_TASK:+--cpus-per-task "$SLURM_CPUS_PER_TASK"} \
    "${torchrun[@]}" -m transformer_mt.train "$@" &
status=0
wait $! || status=$?
if [[ $time_is_short ]]; then # the signal has ended that wait, and not training
    status=0
    wait $! || status=$?
fi

if [[ $time_is_short && $status -ne 0 ]]; then
    if scontrol requeue "$SLURM_JOB_ID"; then
        exit 0
    fi
    printf 'This job cannot be queued again. To go on: sbatch --nodes %q' "$SLURM_JOB_NUM_NODES"
    printf ' %q' ${SLURM_GPUS_ON_NODE:+--gpus-per-node "$SLURM_GPUS_ON_NODE"} scripts/slurm_train.sh "$@"
    echo
fi
exit "$status"
