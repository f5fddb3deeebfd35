"""The law of the rooms: imports go one way, and settings are handed over in sections."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_mt import model_settings, settings

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transformer_mt"
FILES = sorted(PACKAGE.rglob("*.py"))

# What every room may use; these use each other only.
FOUNDATION = {
    *("config", "settings", "model_settings", "suggestions", "synonyms", "yaml_text"),
    *("bounds", "decoding_limits", "needed_memory", "json_text"),
    *("errors", "vocabulary", "languages", "wording", "device", "memory", "weights", "files", "own_directory"),
    *("checksums", "run_directory", "compiler_files"),
}
# Each room, and the rooms below it.
BELOW = {
    "training": {"evaluation", "decoding", "models", "data"},
    "evaluation": {"decoding", "models", "data"},
    "decoding": {"models", "data"},
    "models": set(),
    "data": set(),
    "demo_corpus": set(),
}
# Sections of the configuration, and what is made of any section.
SETTINGS = {"Split", "SplitSentences", "fingerprint"} | {
    name
    for name, value in vars(settings).items()
    if isinstance(value, type) and issubclass(value, model_settings.Section) and value is not settings.Config
}
# What reads configurations, and the room's door to model directories, which hold one.
READS_WHOLE = {"decoding/opening.py", "config.py", "suggestions.py"}


def imports(source: str) -> list[tuple[str, str]]:
    """(module, name) of every import from this package, wherever in the file it stands."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.append(("transformer_mt.<relative>", ""))
        elif isinstance(node, ast.ImportFrom) and node.module == "transformer_mt":
            found += [(f"transformer_mt.{alias.name}", "") for alias in node.names if alias.name != "__version__"]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] == "transformer_mt"]


def violations(file: str, source: str) -> list[str]:
    """What a file, named from the package, imports against the law."""
    place = file.removesuffix(".py").split("/")[0]
    is_stage = place not in BELOW and place not in FOUNDATION
    allowed = FOUNDATION | BELOW.get(place, set()) | ({place} if place in BELOW else set())
    found = []
    for module, name in imports(source):
        part = module.split(".")[1] if "." in module else ""
        if part == "<relative>" or not part:
            found.append(f"{file}: {module} {name}: write from transformer_mt.<module> import <name>")
        elif is_stage:
            continue
        elif part not in allowed and not (place == "cli" and part == "errors"):
            found.append(f"{file}: {module}: {place} may import {', '.join(sorted(allowed))}")
        elif part in ("config", "settings") and name not in SETTINGS and file not in READS_WHOLE:
            found.append(f"{file}: {module} {name}: take a section of the configuration, not the whole")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    assert violations(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("models/x.py", "from transformer_mt.data.batching import Batch"),
        ("data/x.py", "from transformer_mt.models.interface import Seq2Seq"),
        ("models/x.py", "from transformer_mt.decoding import search"),
        ("decoding/x.py", "import transformer_mt.evaluation.metrics"),
        ("evaluation/x.py", "def f():\n    from transformer_mt.training.loop import train"),
        ("training/x.py", "from transformer_mt.prepare import main"),
        ("training/x.py", "from transformer_mt import evaluate"),
        ("data/x.py", "from transformer_mt import cli"),
        ("weights.py", "from transformer_mt.models.transformer import Transformer"),
        ("models/x.py", "from .attention import MultiHeadAttention"),
        ("train.py", "from . import cli"),
        ("training/x.py", "from transformer_mt.settings import Config"),
        ("decoding/search.py", "from transformer_mt.config import load_config"),
        ("training/x.py", "from transformer_mt import settings"),
        ("training/x.py", "import transformer_mt.config"),
        ("training/x.py", "from transformer_mt.config import *"),
    ],
)
def test_the_law_finds_what_breaks_it(file, source):
    assert len(violations(file, source)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("train.py", "from transformer_mt.config import load_config\nfrom transformer_mt import cli"),
        ("training/x.py", "from transformer_mt.evaluation.metrics import bleu\nimport torch"),
        (
            "training/x.py",
            "from transformer_mt.settings import TrainingConfig, Split\nfrom transformer_mt import __version__",
        ),
        (
            "decoding/opening.py",
            "from transformer_mt.settings import Config\nfrom transformer_mt.config import load_config",
        ),
        ("models/x.py", "from transformer_mt.models.attention import causal_mask"),
    ],
)
def test_the_law_lets_the_rest_be(file, source):
    assert violations(file, source) == []


def test_every_room_is_known():
    assert {path.parent.name for path in FILES} - {"transformer_mt"} == BELOW.keys()


@pytest.mark.parametrize(
    "module",
    ["transformer_mt", "transformer_mt.config", "transformer_mt.evaluate", "transformer_mt.decoding.lengths"],
)
def test_importing_does_not_load_pytorch(module):
    found = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert found.stdout.strip() == "False"
