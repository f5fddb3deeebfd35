"""What holds between the rooms: imports go one way, and settings are handed over in sections."""

import ast
import functools
import graphlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.processes import python_path

import transformer_mt
from transformer_mt.decoding import scorer, translator
from transformer_mt.settings import corpus_settings, experiment
from transformer_mt.settings.section import Section

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transformer_mt"
FILES = sorted(PACKAGE.rglob("*.py"))

# What every module may use.
COMMON = {"base", "version"}
# Every room: what it may import besides itself and COMMON. A stage, which stands in no room, may import anything.
BELOW = {
    "base": set(),
    "kernels": set(),
    "settings": set(),
    "storage": set(),
    "corpora": {"settings"},
    "documents": set(),
    "models": {"kernels", "settings"},
    "text": {"settings", "storage"},
    "batches": {"settings", "storage", "text"},
    "inference": {"kernels", "models", "settings"},
    "marian": {"models", "settings", "storage", "text"},
    "decoding": {"documents", "inference", "kernels", "marian", "models", "settings", "storage", "text"},
    "preparing": {"batches", "corpora", "marian", "settings", "storage", "text"},
    "evaluation": {"corpora", "decoding", "marian", "preparing", "settings", "storage", "text"},
    "exporting": {"decoding", "marian", "models", "settings", "storage", "text"},
    "serving": {"decoding", "documents", "marian", "settings", "text"},
    "training": {"batches", "kernels", "models", "settings"},
    "terminal": {"corpora", "decoding", "documents", "evaluation", "marian", "settings", "storage", "text", "training"},
    "training/run": {
        *("batches", "corpora", "decoding", "evaluation", "inference", "kernels", "marian", "models", "settings"),
        *("storage", "text", "training"),
    },
    "reporting": {"decoding", "evaluation", "models", "settings", "storage", "terminal"},
}
ROOMS = {path.parent.relative_to(PACKAGE).as_posix() for path in FILES} - {"."}
# The stages, and what stands beside them.
PORCH = {
    *("__init__", "__main__", "version"),
    *(
        "new",
        "prepare",
        "train",
        "average",
        "translate",
        "serve",
        "score",
        "rerank",
        "evaluate",
        "export",
        "report",
        "plot",
        "demo",
    ),
}
# Sections of the configuration, and what compares one with that of a file.
SETTINGS = {"Split", "SplitSentences", "other_meaning_than"} | {
    name
    for name, value in (vars(experiment) | vars(corpus_settings)).items()
    if isinstance(value, type) and issubclass(value, Section) and value is not experiment.Config
}
# What takes a whole configuration: the room's door to model directories, which hold one, what is made of these, the
# commands of pictures, and reports.
WHOLE = {f"{PACKAGE.name}.settings{module}" for module in ("", ".experiment", ".reading")}
READS_WHOLE = (
    "settings/",
    "exporting/",
    "reporting/",
    "decoding/loading.py",
    "evaluation/comparing.py",
    "marian/marian_conversion.py",
    "serving/model_process.py",
    "terminal/file_to_file.py",
)

# The loop names the types of what `train` hands it.
NAMED_AS_TYPES = {"training/loop.py": "training/run"}
OF_ALL = {"end_at_once"}  # names in the package itself, which every module may use


@functools.cache
def imports(source: str) -> list[tuple[str, str]]:
    """(module, name) of every import from this package, wherever in the file it stands."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.append(("transformer_mt.<relative>", ""))
        elif isinstance(node, ast.ImportFrom) and node.module == "transformer_mt":
            found += [(f"transformer_mt.{alias.name}", "") for alias in node.names if alias.name not in OF_ALL]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] == "transformer_mt"]


def room_of(module: str) -> str:
    """The room of a module, as in training/run; of one of the porch, its name; "" for the package itself."""
    first, *more = module.split(".")[1:] or [""]
    return f"{first}/{more[0]}" if more and f"{first}/{more[0]}" in BELOW else first


def violations(file: str, source: str) -> list[str]:
    """What a file, named from the package, imports against these rules."""
    place = file.rpartition("/")[0]
    allowed = {place} | COMMON | BELOW[place] if place in BELOW else None  # a stage may import anything
    found = []
    for module, name in imports(source):
        part = room_of(module)
        if part == "<relative>" or not part:
            found.append(f"{file}: {module} {name}: write from transformer_mt.<module> import <name>")
        elif allowed is None or NAMED_AS_TYPES.get(file) == part:
            continue
        elif part not in allowed:
            found.append(f"{file}: {module}: {place} may import {', '.join(sorted(allowed))}")
        elif not file.startswith(READS_WHOLE) and module in WHOLE and name not in SETTINGS:
            found.append(f"{file}: {module} {name}: take a section of the configuration, not the whole")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    assert violations(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("models/x.py", "from transformer_mt.batches.batching import Batch"),
        ("batches/x.py", "from transformer_mt.models.interface import Seq2Seq"),
        ("models/x.py", "from transformer_mt.decoding import search"),
        ("models/x.py", "from transformer_mt.inference.frozen import frozen"),
        ("kernels/x.py", "from transformer_mt.models.attention import attention"),
        ("kernels/x.py", "from transformer_mt.training.distributed import Ranks"),
        ("inference/x.py", "from transformer_mt.decoding.hypothesis import Hypothesis"),
        ("decoding/x.py", "from transformer_mt.terminal import cli"),
        ("settings/x.py", "from transformer_mt.storage.files import write_whole"),
        ("decoding/x.py", "import transformer_mt.evaluation.metrics"),
        ("evaluation/x.py", "def f():\n    from transformer_mt.training.loop import train"),
        ("training/x.py", "from transformer_mt.prepare import main"),
        ("training/x.py", "from transformer_mt.training.run.validation import validate"),
        ("training/x.py", "from transformer_mt import evaluate"),
        ("text/x.py", "from transformer_mt.terminal import cli"),
        ("storage/weights.py", "from transformer_mt.models.transformer import Transformer"),
        ("models/x.py", "from .attention import MultiHeadAttention"),
        ("train.py", "from . import device"),
        ("training/x.py", "from transformer_mt import Translator"),
        ("training/x.py", "from transformer_mt.settings.experiment import Config"),
        ("decoding/search.py", "from transformer_mt.settings.reading import load_config"),
        ("training/x.py", "from transformer_mt import settings"),
        ("training/x.py", "import transformer_mt.settings.reading"),
        ("training/x.py", "from transformer_mt.settings.reading import *"),
    ],
)
def test_what_breaks_the_rules_is_found(file, source):
    assert len(violations(file, source)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        (
            "train.py",
            "from transformer_mt.settings.reading import load_config\nfrom transformer_mt.terminal import cli",
        ),
        ("training/x.py", "from transformer_mt.training.distributed import Ranks\nimport torch"),
        (
            "training/x.py",
            "from transformer_mt.version import __version__\nfrom transformer_mt.settings.corpus_settings import Split",
        ),
        (
            "decoding/loading.py",
            "from transformer_mt.settings.experiment import Config\nimport transformer_mt.settings.reading",
        ),
        ("models/x.py", "from transformer_mt.models.attention import causal_mask"),
    ],
)
def test_the_rest_is_allowed(file, source):
    assert violations(file, source) == []


def test_every_room_is_known():
    assert BELOW.keys() == ROOMS


def test_the_porch_holds_the_stages():
    assert {path.stem for path in FILES if path.parent == PACKAGE} == PORCH


def test_no_two_files_have_one_name():
    names = [path.stem for path in FILES if path.stem != "__init__"]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def circle(sources: dict[str, str]) -> list[str]:
    """Modules of which each imports the next, wherever in its file it does so, and the last is the first; or []."""
    needs = {
        importer: {f"{module}.{name}" if f"{module}.{name}" in sources else module for module, name in imports(source)}
        for importer, source in sources.items()
    }
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


SOURCES = {module_of(path): path.read_text(encoding="utf-8") for path in FILES}


def test_no_files_import_one_another_in_a_circle():
    assert circle(SOURCES) == []


@pytest.mark.parametrize(
    ("file", "added"),
    [
        ("kernels.short_attention", "from transformer_mt.kernels.packed_attention import Segments"),
        ("kernels.short_attention", "from transformer_mt.kernels import packed_attention"),
        ("marian.marian_tokenizer", "def f():\n    from transformer_mt.marian import as_model_dir"),
        ("base.errors", "import transformer_mt.base.wording\nif TYPE_CHECKING:\n    import transformer_mt.base.doubts"),
        ("base.languages", "import transformer_mt.base.languages"),
    ],
)
def test_a_circle_is_found(file, added):
    name = f"transformer_mt.{file}"
    assert name in circle(SOURCES | {name: f"{SOURCES[name]}\n{added}\n"})


def loaded_by(statement: str) -> set[str]:
    """The modules that a new process has loaded after a statement."""
    found = subprocess.run(
        [sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": python_path(ROOT)},
    )
    return set(found.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import transformer_mt.settings.reading",
        "import transformer_mt.evaluate",
        "import transformer_mt.decoding.hypothesis",
        "from transformer_mt import Scorer, Translator",
    ],
)
def test_importing_does_not_load_pytorch(statement):
    assert "torch" not in loaded_by(statement)


def test_importing_the_package_loads_nothing_else():
    assert not {name for name in loaded_by("import transformer_mt") if name.split(".")[0] in ("torch", "numpy")}
    assert "transformer_mt.decoding" not in loaded_by("import transformer_mt")


def test_the_package_offers_the_two_classes_of_its_python_api():
    assert transformer_mt.Translator is translator.Translator
    assert transformer_mt.Scorer is scorer.Scorer
    assert transformer_mt.__all__ == ["Scorer", "Translator"]
    with pytest.raises(AttributeError, match="module 'transformer_mt' has no attribute 'Trainer'"):
        _ = transformer_mt.Trainer
    with pytest.raises(ImportError, match="cannot import name 'Trainer' from 'transformer_mt'"):
        exec("from transformer_mt import Trainer")
