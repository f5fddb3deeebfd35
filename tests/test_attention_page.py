"""The commands of docs/attention.md do what the page says, one after the other."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.tiny import ROOT

PAGE = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")
AVERAGE = "python -m transformer_mt.average RUN_DIR"
# What is added to a command so that it takes seconds; nothing of it is replaced.
SHORT_TRAINING = [
    *("training.max_steps=20", "training.warmup_steps=10", "training.validate_every=20", "training.save_every=10"),
    *("training.valid_sentences=4", "decoding.max_extra_length=5"),
]
SHORTER = {
    "scripts/make_demo_corpus.py": ["--train", "3000", "--test", "10"],
    "scripts/benchmarks/layer_cost.py": ["--lengths", "32", "64", "--repeats", "1"],
    "transformer_mt.train": SHORT_TRAINING,
}


def commands(page: str) -> list[list[str]]:
    """Of each block of code without a language, in their order, as their arguments after `python`."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    lines = [line for language, block in blocks if not language for line in block.replace("\\\n", " ").splitlines()]
    for line in lines:
        assert line.startswith("python "), f"{line}: this test only knows how to run Python"
    return [shlex.split(line)[1:] for line in lines]


def shortened(arguments: list[str]) -> list[str]:
    program = arguments[1] if arguments[0] == "-m" else arguments[0]
    return [*arguments, *SHORTER.get(program, [])]


def value_of(arguments: list[str], *names: str) -> str | None:
    """What follows an option, or the = of a setting."""
    for name in names:
        if name in arguments:
            return arguments[arguments.index(name) + 1]
    return next((text.partition("=")[2] for text in arguments if text.partition("=")[0] in names), None)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory in which the project's files are found, and which is not the project's."""
    for name in ("configs", "scripts", "transformer_mt"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run(project: Path, arguments: list[str]) -> None:
    environment = os.environ | {"PYTHONPATH": str(project)}
    command = [sys.executable, *shortened(arguments)]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"python {shlex.join(arguments)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.mark.slow
def test_every_command_runs_and_writes_the_files_that_it_names(project):
    assert f"`{AVERAGE}` after each training" in PAGE
    pictures = set()
    for arguments in commands(PAGE):
        run(project, arguments)
        run_dir, output = value_of(arguments, "run_dir"), value_of(arguments, "--output", "--out")
        if run_dir:
            run(project, shlex.split(AVERAGE.replace("RUN_DIR", run_dir))[1:])
            assert (project / run_dir / "model" / "model.safetensors").stat().st_size > 0
        if output:
            found = project / output
            assert found.is_dir() or found.stat().st_size > 0, arguments
            assert not found.is_dir() or any(found.iterdir()), arguments
            pictures.add(output)
    assert len(pictures) > 20


def test_each_kind_of_command_is_known():
    """A page that ran nothing would pass."""
    programs = [arguments[1] if arguments[0] == "-m" else arguments[0] for arguments in commands(PAGE)]
    assert set(SHORTER) <= set(programs)
    assert programs.count("transformer_mt.train") > 12 and programs.count("transformer_mt.plot") > 15


def test_each_run_is_trained_before_it_is_used():
    trained: set[str] = set()
    for arguments in commands(PAGE):
        used = {"/".join(word.split("/")[:2]) for word in arguments if word.startswith("runs/")}
        assert used <= trained, arguments
        trained |= {run_dir} if (run_dir := value_of(arguments, "run_dir")) else set()
