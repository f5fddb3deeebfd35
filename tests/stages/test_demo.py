"""The demo: the stages that `make train` runs, stopped as they are."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from helpers.processes import python_path
from helpers.tiny import ROOT

from transformer_mt import demo

PYTHON = [sys.executable, "-S", "-c"]  # -S: begins sooner


def test_the_stages_are_those_of_make_train():
    recipe = re.search(r"^train: .*?(?=^\S*:)", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL)[0]
    commands = demo.stages(["training.seed=3"], "runs/x")
    assert [command[2].removeprefix("transformer_mt.") for command in commands] == re.findall(
        r"-m transformer_mt\.(\w+)", recipe
    )
    assert f"DEMO := {demo.CONFIG}\n" in (ROOT / "Makefile").read_text()
    assert [command[3:] for command in commands] == [
        ["configs/demo_en_de.yaml", "training.seed=3"],
        ["configs/demo_en_de.yaml", "training.seed=3"],
        ["runs/x"],
        ["runs/x"],
    ]


@pytest.mark.parametrize(("ending", "status"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_the_first_stage_that_fails_is_the_last(tmp_path, ending, status):
    first, never = tmp_path / "first", tmp_path / "never"
    touch = [[*PYTHON, f"open({str(path)!r}, 'w')"] for path in (first, never)]
    assert demo.run_all([touch[0], [*PYTHON, f"import os, sys; {ending}"], touch[1]]) == status
    assert first.exists()
    assert not never.exists()


def test_control_c_before_the_stage_can_handle_it_is_130():
    """Python itself ends with 1, if Ctrl-C comes while it starts."""
    stage = f"import os, signal, sys; os.kill({os.getpid()}, signal.SIGINT); sys.exit(1)"
    assert demo.run_all([[*PYTHON, stage]]) == 130


def test_all_done_is_zero():
    assert demo.run_all([[*PYTHON, ""], [*PYTHON, ""]]) == 0


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_stage_end_in_its_own_way(signum):
    """Ctrl-C reaches all processes of a terminal; SIGTERM this one alone, which passes it on."""
    stage = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(130))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "print('begun', flush=True)\n"
        "while True: signal.pause()\n"
    )
    program = f"import sys; from transformer_mt import demo; sys.exit(demo.run_all([{[*PYTHON, stage]!r}]))"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": python_path(ROOT)},
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            if signum == signal.SIGINT:
                os.killpg(process.pid, signum)
            else:
                process.send_signal(signum)
            assert process.wait(timeout=60) == 128 + signum
            assert process.stderr.read() == ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_from_an_empty_directory_to_scores_and_again(tmp_path):
    few = ["training.max_steps=2", "training.warmup_steps=1", "training.num_threads=1"]
    for line in ("Wrote data/demo_corpus", "is already there and whole"):
        done = subprocess.run(
            [sys.executable, "-m", "transformer_mt", "demo", *few],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": python_path(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert line in done.stdout
        assert "demo  BLEU" in done.stdout
        assert "-m transformer_mt translate runs/demo_en_de/model" in done.stdout
    assert "already trained, 2 updates" in done.stdout
