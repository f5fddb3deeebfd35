#!/usr/bin/env bash
# Translates a file under Slurm with any number of tasks, which share the parts of the file. Submit it in the directory of
# the repository:
#
#   sbatch --array 1-16 --gpus 1 --time 12:00:00 scripts/slurm_translate.sh MODEL_DIR \
#       --input mono.de.gz --output mono.en.gz sampling=true [key=value …]
#
# Memory, CPUs, partition and account are options of sbatch, too. To use another interpreter than .venv/bin/python, set
# PYTHON. The model, the input and the output must be on a disk that all nodes share. The tasks need not run at the same
# time, and you may submit more of them later. Two minutes before the time limit, a task is queued again and then resumes.
# Without GPUs, a task has a worker for each of its cores (--cpus-per-task).

#SBATCH --job-name transformer-mt-translate
#SBATCH --requeue
#SBATCH --open-mode append
# Not TERM, because scancel sends TERM, and a cancelled job must not be queued again.
#SBATCH --signal B:USR1@120

set -euo pipefail
: "${1:?give a model: sbatch … scripts/slurm_translate.sh MODEL_DIR --input FILE --output FILE}"
if [[ ${SLURM_JOB_NUM_NODES:-1} -gt 1 ]]; then
    echo "error: this script uses one node; for more, submit an array: sbatch --array 1-16 --gpus 1 …" >&2
    exit 2
fi
: "${SLURM_JOB_ID:?submit this script by sbatch, as its first lines say}"

time_is_short=
trap 'time_is_short=yes; kill -TERM $(jobs -p)' USR1
trap 'kill -TERM $(jobs -p)' TERM

# In the background, because bash delays a trap until a foreground command ends.
"${PYTHON:-.venv/bin/python}" -m transformer_mt.translate "$@" --once &
process=$!
status=0
wait "$process" || status=$?
if kill -0 "$process" 2> /dev/null; then # a signal has ended only the `wait`, not the process
    status=0
    wait "$process" || status=$?
fi
if [[ $time_is_short && $status -ne 0 ]]; then
    # One task of an array has the number of the whole array as its SLURM_JOB_ID.
    task=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
    scontrol requeue "${task:-$SLURM_JOB_ID}" && exit 0
    echo "This task cannot be queued again. To resume, submit the same job again"
fi
exit "$status"
