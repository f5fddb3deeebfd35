"""Local text needs no package that reads the hub: some machines do not have it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import check_requirements
import pytest
from helpers.processes import python_path
from helpers.tiny import ROOT, write_experiment

WITHOUT = """
import importlib.metadata, sys
class Nowhere:  # as if it were not installed
    def find_spec(self, name, path=None, target=None):
        if name == "datasets":
            raise ModuleNotFoundError(name)
    def find_distributions(self, context):
        return iter(())
sys.meta_path.insert(0, Nowhere())
known = importlib.metadata.version
def version(name):
    if name == "datasets":
        raise importlib.metadata.PackageNotFoundError(name)
    return known(name)
importlib.metadata.version = version
from transformer_mt import prepare
sys.exit(prepare.main(sys.argv[1:]))
"""


def test_local_text_is_prepared_without_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(write_experiment(tmp_path))],
        env=os.environ | {"PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    versions = json.loads((tmp_path / "data" / "prepare.json").read_text())["versions"]
    assert versions.keys() == {"transformer_mt", "python", "sentencepiece", "numpy"}


@pytest.mark.parametrize(("missing", "status"), [("datasets", 0), ("sacrebleu", 2)])
def test_an_installation_by_hand_may_lack_only_that_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str, status: int
) -> None:
    def version(name: str) -> str:
        if name == missing:
            raise check_requirements.PackageNotFoundError(name)
        return "999"

    monkeypatch.setattr(check_requirements, "version", version)
    assert check_requirements.main() == status
    error = capsys.readouterr().err
    assert f"lacks {missing}>=" in error
    assert error.startswith("note: " if status == 0 else "error: ")
    assert ("Only corpora from the Hugging Face hub need it" in error) == (missing == "datasets")
