"""The solutions of docs/exercises.md fit the package, and the test of each fails without its solution."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from helpers.tiny import ROOT

DIFFS = sorted((ROOT / "docs" / "exercises").glob("*.diff"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the package, which a diff can change."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "transformer_mt", tmp_path / "transformer_mt", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def apply(project: Path, diff: Path, choice: str) -> None:
    # Outside a repository, or in one above, which git is not to look for.
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(project.parent)}
    done = subprocess.run(
        ["git", "apply", choice, str(diff)], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{diff.name} no longer fits the code: {done.stderr}"


def run(project: Path, *command: object) -> subprocess.CompletedProcess[str]:
    """Run a script or module of Python with the copy of the package."""
    environment = os.environ | {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def passes(project: Path) -> bool:
    done = run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/exercises")
    assert done.returncode in (0, 1, 2), done.stdout + done.stderr  # 2: a test cannot import what is missing
    return done.returncode == 0


@pytest.fixture(scope="module")
def types_cache(tmp_path_factory) -> Path:
    """What mypy finds in PyTorch, which takes most of its time, is the same for all diffs."""
    return tmp_path_factory.mktemp("mypy")


def test_each_exercise_has_a_diff():
    page = (ROOT / "docs" / "exercises.md").read_text(encoding="utf-8")
    assert len(DIFFS) >= 3
    assert [diff.stem for diff in DIFFS if f"<!-- diff: {diff.stem} -->" not in page] == []


@pytest.mark.slow
@pytest.mark.parametrize("diff", DIFFS, ids=lambda path: path.stem)
def test_the_test_of_an_exercise_fails_without_its_solution_and_passes_with_it(diff, project, types_cache):
    apply(project, diff, "--include=tests/*")
    assert not passes(project)
    apply(project, diff, "--exclude=tests/*")
    assert passes(project)
    checked = run(project, "-m", "mypy", "--cache-dir", types_cache)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton (with PyTorch for CUDA) is not installed")
@pytest.mark.parametrize("normalisation", ["layer", "rms"])
def test_rms_norm_fits_the_kernels_for_gpus(normalisation, project):
    """Triton's interpreter runs those that are left; the layer norms still have theirs."""
    apply(project, ROOT / "docs" / "exercises" / "rms_norm.diff", "--exclude=tests/*")
    torch.save([[[3, 7, 1], 16, {"normalisation": normalisation}]], project / "cases.pt")
    script = ROOT / "tests" / "helpers" / "interpreted.py"
    done = run(project, script, "layers", project / "cases.pt", project / "results.pt")
    assert done.returncode == 0, done.stderr
    (found,) = torch.load(project / "results.pt", weights_only=True)
    half = len(found) // 2
    for ours, plain in zip(found[:half], found[half:], strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
