# The common part of slurm_train.sh and slurm_translate.sh, which read it: runs the stage $stage on all nodes of the job,
# a process for each GPU, and puts the job back into the queue before its time limit, if the stage has not ended.
# shellcheck shell=bash

set -euo pipefail

: "${SLURM_JOB_ID:?submit this script by sbatch, as its first lines say}"

first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
processes=${SLURM_GPUS_ON_NODE:-1}

torchrun=(
    "${PYTHON:-.venv/bin/python}" -m torch.distributed.run
    --nnodes "$SLURM_JOB_NUM_NODES"
    --nproc-per-node "$processes"
    --rdzv-backend c10d
    --rdzv-endpoint "$first_node:$((20000 + SLURM_JOB_ID % 10000))" # jobs that share a node have a port each
    --rdzv-id "$SLURM_JOB_ID"
    --max-restarts 3 # if a process fails, all begin again from what was saved
)

# The steps are signalled, and not srun: on SIGTERM srun kills them at once.
time_is_short=
trap 'time_is_short=yes; scancel --signal=TERM "$SLURM_JOB_ID"' USR1

# srun does not take over --cpus-per-task by itself. In the background, because a trap waits for the foreground.
srun --nodes "$SLURM_JOB_NUM_NODES" --ntasks-per-node 1 ${SLURM_CPUS_PER_TASK:+--cpus-per-task "$SLURM_CPUS_PER_TASK"} \
    "${torchrun[@]}" -m "transformer_mt.$stage" "$@" &
status=0
wait $! || status=$?
if [[ $time_is_short ]]; then # the signal has ended that wait, and not the stage
    status=0
    wait $! || status=$?
fi

if [[ $time_is_short && $status -ne 0 ]]; then
    if scontrol requeue "$SLURM_JOB_ID"; then
        exit 0
    fi
    printf 'This job cannot be queued again. To go on: sbatch --nodes %q' "$SLURM_JOB_NUM_NODES"
    printf ' %q' ${SLURM_GPUS_ON_NODE:+--gpus-per-node "$SLURM_GPUS_ON_NODE"} "scripts/slurm_$stage.sh" "$@"
    echo
fi
exit "$status"
