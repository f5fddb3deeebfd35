"""What the scripts for Slurm would run under it: commands of its names write down how they are called."""

import os
import shutil
import signal
import subprocess
import time

import pytest
from helpers.tiny import ROOT

SCRIPTS = ROOT / "scripts"
each_stage = pytest.mark.parametrize("stage", ["train", "translate"])
ARGUMENTS = ["configs/x.yaml", "run_dir=runs/with a space", "corpus.test={a: 'b'}"]

RECORD = 'printf "%s\\n" "$@" > "$SEEN/${0##*/}.partial"; mv "$SEEN/${0##*/}.partial" "$SEEN/${0##*/}"\n'
COMMANDS = {
    # Runs until training is asked to stop, where the test says so.
    "srun": RECORD + 'while [[ $RUNS && ! -e $SEEN/scancel ]]; do sleep 0.01; done\nexit "$STATUS"\n',
    "scancel": RECORD,
    # The interpreter of a task that translates.
    "python": 'trap "exit 143" TERM\n' + RECORD + 'while [[ $RUNS ]]; do sleep 0.01; done\nexit "$STATUS"\n',
    "scontrol": 'if [[ $1 == show ]]; then printf "%s\\n" $NAMES; exit; fi\n' + RECORD + 'exit "$REQUEUE"\n',
}


@pytest.fixture
def slurm(tmp_path):
    """A function that starts the script in a job of these nodes."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "seen").mkdir()
    for name, text in COMMANDS.items():
        (tmp_path / "bin" / name).write_text("#!/usr/bin/env bash\n" + text)
        (tmp_path / "bin" / name).chmod(0o755)

    def start(*arguments, stage="train", nodes=1, runs="", status=0, requeue=0, **environment):
        job = {"SLURM_JOB_ID": "4321", "SLURM_JOB_NUM_NODES": str(nodes), "SLURM_JOB_NODELIST": f"gpu[7-{6 + nodes}]"}
        job |= {"NAMES": " ".join(f"gpu{7 + node}" for node in range(nodes)), "SEEN": str(tmp_path / "seen")}
        job |= {"RUNS": runs, "STATUS": str(status), "REQUEUE": str(requeue), "PYTHON": "/opt/a python"}
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        return subprocess.Popen(
            ["bash", SCRIPTS / f"slurm_{stage}.sh", *arguments],
            cwd=ROOT,
            env={"PATH": path} | job | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def seen(tmp_path):
    """A function that returns the arguments of a command, or None if it was not called."""

    def read(command):
        path = tmp_path / "seen" / command
        return path.read_text().splitlines() if path.exists() else None

    return read


def stopped_early(process, seen, command="srun", number=signal.SIGUSR1):
    """Send what Slurm sends before the time limit, as soon as this command runs."""
    while seen(command) is None:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    return process.communicate()


@pytest.mark.parametrize("nodes", [1, 3])
def test_one_torchrun_a_node_with_a_process_a_gpu(slurm, seen, nodes):
    process = slurm(*ARGUMENTS, nodes=nodes, SLURM_GPUS_ON_NODE="8", SLURM_CPUS_PER_TASK="96")
    output = process.communicate()
    assert process.returncode == 0, output
    assert seen("srun") == [
        *("--nodes", str(nodes), "--ntasks-per-node", "1", "--cpus-per-task", "96"),
        *("/opt/a python", "-m", "torch.distributed.run"),
        *("--nnodes", str(nodes), "--nproc-per-node", "8"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "gpu7:24321", "--rdzv-id", "4321", "--max-restarts", "3"),
        *("-m", "transformer_mt.train", *ARGUMENTS),
    ]
    assert seen("scancel") is None
    assert seen("scontrol") is None


def test_without_gpus_there_is_one_process_a_node(slurm, seen):
    slurm(*ARGUMENTS, nodes=2).communicate()
    assert seen("srun")[:4] == ["--nodes", "2", "--ntasks-per-node", "1"]
    assert "--cpus-per-task" not in seen("srun")
    assert seen("srun")[seen("srun").index("--nproc-per-node") + 1] == "1"


def test_a_failure_of_training_is_the_jobs(slurm, seen):
    process = slurm(*ARGUMENTS, status=7)
    process.communicate()
    assert process.returncode == 7
    assert seen("scontrol") is None


def test_before_the_time_limit_training_is_asked_to_stop_and_queued_again(slurm, seen):
    process = slurm(*ARGUMENTS, runs="yes", status=143)
    output = stopped_early(process, seen)
    assert process.returncode == 0, output
    assert seen("scancel") == ["--signal=TERM", "4321"]
    assert seen("scontrol") == ["requeue", "4321"]


def test_a_job_that_cannot_be_queued_again_says_how_to_go_on(slurm, seen):
    process = slurm(*ARGUMENTS, nodes=3, runs="yes", status=143, requeue=1, SLURM_GPUS_ON_NODE="8")
    said, _ = stopped_early(process, seen)
    assert process.returncode == 143
    command = said.split("To resume: ")[1]
    words = subprocess.run(
        ["bash", "-c", f'for word in {command.strip()}; do echo "$word"; done'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert words == ["sbatch", "--nodes", "3", "--gpus-per-node", "8", "scripts/slurm_train.sh", *ARGUMENTS]


def test_training_that_ends_by_itself_after_the_signal_is_not_queued_again(slurm, seen):
    process = slurm(*ARGUMENTS, runs="yes", status=0)
    stopped_early(process, seen)
    assert process.returncode == 0
    assert seen("scontrol") is None


def test_a_task_that_translates_is_one_process(slurm, seen, tmp_path):
    for status in (0, 2):
        process = slurm(*ARGUMENTS, stage="translate", status=status, PYTHON=str(tmp_path / "bin" / "python"))
        process.communicate()
        assert process.returncode == status
        assert seen("python") == ["-m", "transformer_mt.translate", *ARGUMENTS, "--once"]
        assert seen("scontrol") is None


@pytest.mark.parametrize(
    ("number", "requeue", "status"), [(signal.SIGUSR1, 0, 0), (signal.SIGUSR1, 1, 143), (signal.SIGTERM, 0, 143)]
)
def test_a_task_that_translates_is_queued_again_before_the_time_limit(slurm, seen, tmp_path, number, requeue, status):
    python = str(tmp_path / "bin" / "python")
    process = slurm(*ARGUMENTS, stage="translate", runs="yes", requeue=requeue, PYTHON=python)
    said, _ = stopped_early(process, seen, "python", number)
    assert process.returncode == status
    assert seen("scontrol") == (["requeue", "4321"] if number == signal.SIGUSR1 else None)
    assert ("submit the same job again" in said) == (requeue == 1)


def test_only_its_own_task_of_an_array_is_queued_again(slurm, seen, tmp_path):
    # In one of the tasks, SLURM_JOB_ID is the number of the array, and would queue all its tasks again.
    array = {"SLURM_ARRAY_JOB_ID": "4321", "SLURM_ARRAY_TASK_ID": "7", "PYTHON": str(tmp_path / "bin" / "python")}
    stopped_early(slurm(*ARGUMENTS, stage="translate", runs="yes", **array), seen, "python")
    assert seen("scontrol") == ["requeue", "4321_7"]


@pytest.mark.parametrize(
    ("stage", "arguments", "environment", "message"),
    [
        ("train", [], {}, "give a configuration"),
        ("translate", [], {}, "give a model"),
        ("train", ARGUMENTS, {"SLURM_JOB_ID": ""}, "submit this script by sbatch"),
        ("translate", ARGUMENTS, {"SLURM_JOB_ID": ""}, "submit this script by sbatch"),
    ],
)
def test_what_is_missing_is_said(slurm, seen, stage, arguments, environment, message):
    process = slurm(*arguments, stage=stage, **environment)
    _, error = process.communicate()
    assert process.returncode != 0
    assert message in error
    assert seen("srun") is None


@each_stage
def test_the_script_is_bash(stage):
    subprocess.run(["bash", "-n", SCRIPTS / f"slurm_{stage}.sh"], check=True)
    assert os.access(SCRIPTS / f"slurm_{stage}.sh", os.X_OK)


@each_stage
@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_no_complaint(stage):
    subprocess.run(["shellcheck", "--external-sources", SCRIPTS / f"slurm_{stage}.sh"], check=True, cwd=ROOT)
