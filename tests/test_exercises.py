"""The solutions of docs/exercises.md fit the package, and the test of each fails without its solution."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
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


def passes(project: Path) -> bool:
    environment = os.environ | {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/exercises"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2), done.stdout + done.stderr  # 2: a test cannot import what is missing
    return done.returncode == 0


def test_each_exercise_has_a_diff():
    page = (ROOT / "docs" / "exercises.md").read_text(encoding="utf-8")
    assert len(DIFFS) >= 3
    assert [diff.stem for diff in DIFFS if f"<!-- diff: {diff.stem} -->" not in page] == []


@pytest.mark.slow
@pytest.mark.parametrize("diff", DIFFS, ids=lambda path: path.stem)
def test_the_test_of_an_exercise_fails_without_its_solution_and_passes_with_it(diff, project):
    apply(project, diff, "--include=tests/*")
    assert not passes(project)
    apply(project, diff, "--exclude=tests/*")
    assert passes(project)
