"""A model may lie where nothing can be written, as one that is mounted into a container."""

import os
import shutil
import subprocess
import sys

import pytest
from helpers.processes import python_path
from helpers.tiny import ROOT, demo_pairs


def state(directory):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


@pytest.mark.thorough
def test_translate_needs_no_home_and_leaves_a_read_only_model_as_it_is(model_dir, translator, tmp_path):
    model, source = tmp_path / "model", demo_pairs(1)[0][0]
    shutil.copytree(model_dir, model)
    for path in [*model.iterdir(), model]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = state(model)
    home = tmp_path / "no" / "home"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "transformer_mt.translate", str(model), "--device=cpu", "--workers=1", "--quiet"],
            input=source,  # which no newline ends
            capture_output=True,
            encoding="utf-8",
            check=False,
            cwd=model,
            env=os.environ | {"HOME": str(home), "PYTHONPATH": python_path(ROOT)},
        )
    finally:
        model.chmod(0o755)
    expected = f"{translator.translate([source])[0]}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    assert state(model) == before
    assert not home.parent.exists()
