"""What `make` installs for each target, and that the stages of `make train` need no more than it installs for them."""

import os
import subprocess
import sys
import tomllib

import pytest
from helpers.processes import python_path
from helpers.tiny import ROOT, write_experiment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def commands(directory, *words, with_uv=False):
    """What `make` would run with the environment `directory`/venv; with_uv: a program of this name is on the PATH."""
    around = {
        name: value for name, value in os.environ.items() if name != "TORCH" and not name.startswith(("MAKE", "MF"))
    }
    if with_uv:
        (directory / "uv").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        (directory / "uv").chmod(0o755)
        around["PATH"] = f"{directory}:{around['PATH']}"
    command = [
        "make",
        "-n",
        *words,
        f"VENV={directory}/venv",
        f"PYTHON={sys.executable}",
        *([] if with_uv else ["UV="]),
    ]
    done = subprocess.run(command, cwd=ROOT, env=around, capture_output=True, text=True, check=True)
    return done.stdout.replace(f"{directory}/", "").splitlines()


def installations(directory, *words, with_uv=False):
    return [line for line in commands(directory, *words, with_uv=with_uv) if " install " in line]


def test_the_stages_install_the_package_without_extras(tmp_path):
    for target in ("train", "prepare", "translate", "evaluate", "schema"):
        [line] = installations(tmp_path, target)
        assert line == 'venv/bin/python -m pip install --no-compile -c constraints.txt -e "."'


@pytest.mark.parametrize(
    ("extra", "targets"),
    [
        ("dev", "setup test test-all test-slow test-gpu check lint types bench"),
        ("plot", "report"),
        ("docs", "docs"),
    ],
)
def test_other_targets_add_their_extra(tmp_path, extra, targets):
    assert extra in PROJECT["optional-dependencies"]
    for target in targets.split():
        assert installations(tmp_path, target)[-1].endswith(f' -e ".[{extra}]"'), target


def test_what_is_installed_is_not_installed_again(tmp_path):
    (tmp_path / "venv").mkdir()
    for stamp in (".installed", ".installed-plot", ".installed-dev"):
        (tmp_path / "venv" / stamp).touch()
    for target in ("train", "report", "test"):
        assert installations(tmp_path, target) == []
    (tmp_path / "venv" / ".installed-dev").unlink()
    assert len(installations(tmp_path, "test")) == 1 and installations(tmp_path, "train") == []
    assert "touch venv/.installed venv/.installed-plot" in commands(tmp_path, "setup"), "which [dev] contains"


def test_uv_installs_into_the_environment_of_the_given_python(tmp_path):
    lines = commands(tmp_path, "train", with_uv=True)
    assert f"test -x venv/bin/python || {sys.executable} -m venv venv" in lines
    assert 'uv pip install --python venv/bin/python -c constraints.txt -e "."' in lines
    assert not any("-m pip" in line for line in lines)


@pytest.mark.parametrize("with_uv", [False, True])
def test_the_build_for_cpus_comes_first_and_from_its_own_index(tmp_path, with_uv):
    torch, package = installations(tmp_path, "train", "TORCH=cpu", with_uv=with_uv)
    assert torch.endswith(f" -c constraints.txt --no-deps --index-url {CPU_INDEX} torch")
    assert "index" not in package
    assert not any("index" in line for line in installations(tmp_path, "train", with_uv=with_uv))


@pytest.mark.thorough
def test_the_stages_of_make_train_run_without_the_packages_of_extras(tmp_path):
    config, run_dir = write_experiment(tmp_path), tmp_path / "run"
    (tmp_path / "in.en").write_text("The child is sleeping.\n", encoding="utf-8")
    stages = [
        f"{ROOT}/scripts/make_demo_corpus.py --output {tmp_path}/demo --train 20 --valid 4 --test 4",
        f"prepare {config}",
        f"train {config}",
        f"average {run_dir}",
        f"evaluate {run_dir}",
        f"translate {run_dir}/model --input {tmp_path}/in.en --output {tmp_path}/out.de",
    ]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "helpers" / "without_extras.py")],
        input="\n".join(stages),
        env={**os.environ, "PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {"matplotlib", "transformers", "moto", "pytest"} <= set(done.stdout.splitlines()[0].split())
    assert "tiny  BLEU" in done.stdout and (tmp_path / "out.de").read_text(encoding="utf-8").count("\n") == 1
