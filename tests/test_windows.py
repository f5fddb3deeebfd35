"""The package as it runs on Windows, as far as Linux can show it."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.as_on_windows import NO_MODULES, NO_NAMES
from helpers.processes import python_path
from helpers.tiny import ROOT, write_experiment

from transformer_mt.terminal.cli import shown

PACKAGE = ROOT / "transformer_mt"
ONLY_HERE = "base/system.py"
ASKS_BEFORE = [("base/cores.py", "os.sched_getaffinity"), ("base/cores.py", "os.sysconf")]

FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)


def as_on_windows(stages):
    """What Python prints that imports all modules, and runs these stages, in an old encoding of Windows."""
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(ROOT),
        "PYTHONIOENCODING": "cp1252",
        "PYTHONUTF8": "0",
    }
    command = [sys.executable, "-X", "warn_default_encoding", str(ROOT / "tests" / "helpers" / "as_on_windows.py")]
    done = subprocess.run(command, input="\n".join(stages).encode(), env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode("cp1252")
    return done.stdout.decode("cp1252").splitlines()


def used(source):
    """The modules that a source imports, and the attributes of modules that it names, such as os.fork."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"


MISSING = {"sys.platform", *NO_MODULES, *(f"{of.__name__}.{name}" for of in NO_NAMES for name in NO_NAMES[of].split())}


def test_only_one_module_uses_what_windows_lacks():
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    found = [(file, name) for file, source in files.items() for name in used(source) if name in MISSING]
    assert ONLY_HERE in {file for file, _ in found}
    assert sorted((file, name) for file, name in found if file != ONLY_HERE) == ASKS_BEFORE


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_all_stages_run(tmp_path):
    config, run_dir = write_experiment(tmp_path), tmp_path / "run"
    (tmp_path / "in.en").write_bytes("The child is sleeping.\r\nA nurse → ran.\r\n".encode())
    said = as_on_windows(
        [
            f"prepare {config}",
            f"train {config} training.max_steps=14",
            f"train {config} training.max_steps=20",
            f"average {run_dir}",
            f"average {run_dir} choose=last",
            f"translate {run_dir}/model --input {tmp_path}/in.en --output {tmp_path}/out.de",
            f"translate {run_dir}/model --input {tmp_path}/in.en --output {tmp_path}/out.de",
            f"evaluate {run_dir}",
        ]
    )
    modules, *memory = map(int, said[0].split())
    assert modules > 150 and memory == [8, 4, 1]
    assert (tmp_path / "out.de").read_bytes().count(b"\n") == 2
    assert (run_dir / "checkpoints" / "best" / "model.safetensors").is_file()
    assert f"next: {shown(Path(sys.executable))} -m transformer_mt.average {run_dir}" in said
    made = [path for path in tmp_path.rglob("*")]
    assert [path for path in made if FORBIDDEN.search(path.name)] == []
    assert [path for path in made if "transformer_mt-partial" in path.name] == []
