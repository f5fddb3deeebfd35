"""What README asks a student to read is what runs: all of it with plain kernels, and by default most of it."""

import ast
import math
import sys
from pathlib import Path

import count_house
import pytest
from helpers.tiny import log_records, train_tiny

from transformer_mt import average
from transformer_mt.decoding.scorer import Scorer
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.search_settings import DecodingConfig

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transformer_mt"
# What `training.kernels=fast`, the default, exchanges (inference/fast.py).
EXCHANGED = """
    decoding/search.py best_continuations
    models/attention.py Memory.select
    models/attention.py MultiHeadAttention.project_rows
    models/transformer.py Cache.attend
    models/transformer.py Cache.select
    models/transformer.py FeedForward.forward
    models/transformer.py Transformer.features
    models/transformer.py Transformer.read
    models/transformer.py Transformer.start
    models/transformer.py Transformer.step
    models/transformer.py TransformerState.follow
    models/transformer.py TransformerState.keep
    models/transformer.py empty_cache
    training/loss.py label_smoothed
    training/loss.py real_features
"""
# The most lines that a module has together with all that it imports (scripts/count_house.py).
BOUNDS = {"decoding/search.py": 1500, "training/loop.py": 3500}
LINES = ["the house", "a child is sleeping", "He sees the house."]


def defined(file: str) -> set[str]:
    """The functions of a file that do something, as Class.method or function."""
    found = set()
    for node in ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body:
        of_class = node.body if isinstance(node, ast.ClassDef) else []
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in (node, *of_class):
            # What is abstract has nothing but a docstring.
            if isinstance(each, ast.FunctionDef) and not (len(each.body) == 1 and ast.get_docstring(each)):
                found.add(f"{file} {prefix}{each.name}")
    return found


@pytest.fixture(scope="module")
def called(experiment, tmp_path_factory):
    """What is called in two updates with a validation, and in two searches; by the kind of kernels."""
    return {kernels: _called(kernels, experiment, tmp_path_factory.mktemp(kernels)) for kernels in ("plain", "fast")}


def _called(kernels: str, experiment: Path, directory: Path) -> set[str]:
    found = set()

    def note(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(PACKAGE)):
            found.add(f"{Path(file).relative_to(PACKAGE)} {frame.f_code.co_qualname}")

    run_dir = directory / "run"
    sys.setprofile(note)
    try:
        train_tiny(experiment, run_dir, "training.max_steps=2", "training.save_every=2", f"training.kernels={kernels}")
        average.main([str(run_dir), "choose=last"])
        translator = Translator.load(run_dir / "model", "cpu", workers=1, plain=kernels == "plain")
        for beam_size in (1, 3):
            translator.translate(LINES, DecodingConfig(beam_size=beam_size))
        Scorer(translator.engine, translator.tokenizer).score(LINES, LINES)
    finally:
        sys.setprofile(None)
    return found


def named(places: str) -> set[str]:
    return {line.strip() for line in places.strip().splitlines()}


@pytest.mark.thorough
def test_all_that_is_read_is_called_with_plain_kernels(called):
    listed = set().union(*map(defined, count_house.reading_list(ROOT)))
    assert listed - called["plain"] == set()


@pytest.mark.thorough
def test_faster_forms_are_exchanged_for_these_functions_and_no_others(called):
    listed = set().union(*map(defined, count_house.reading_list(ROOT)))
    assert listed & (called["plain"] - called["fast"]) == named(EXCHANGED)


def test_the_list_can_be_read_in_an_evening():
    texts = [(PACKAGE / file).read_text(encoding="utf-8") for file in count_house.reading_list(ROOT)]
    assert sum(len(text.splitlines()) for text in texts) <= 900


@pytest.mark.thorough
@pytest.mark.parametrize("file", BOUNDS)
def test_what_a_module_imports_stays_small(file):
    files = {count_house.module_name(ROOT, path): path for path in PACKAGE.rglob("*.py")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    graph = {name: count_house.imported(ast.parse(text), set(files)) - {name} for name, text in texts.items()}
    start = f"{count_house.PACKAGE}.{file.removesuffix('.py').replace('/', '.')}"
    seen = count_house.closure(start, graph)
    assert sum(len(texts[name].splitlines()) for name in seen) <= BOUNDS[file], sorted(seen)


def test_plain_kernels_train_in_bf16(experiment, tmp_path):
    settings = ["training.max_steps=2", "training.validate_every=2", "training.precision=bf16"]
    train_tiny(experiment, tmp_path / "run", *settings, "training.kernels=plain")
    assert all(math.isfinite(record["loss"]) for record in log_records(tmp_path / "run") if "loss" in record)


def test_both_kinds_of_kernels_give_the_same_losses_and_translations(experiment, tmp_path):
    """In fp32, without dropout, whose random numbers differ."""
    losses, translations = [], []
    for kernels in ("plain", "fast"):
        run_dir = tmp_path / kernels
        settings = ["model.dropout=0", "training.log_every=1", f"training.kernels={kernels}"]
        train_tiny(experiment, run_dir, *settings)
        losses.append([record["loss"] for record in log_records(run_dir) if "loss" in record])
        average.main([str(run_dir), "choose=last"])
        translator = Translator.load(tmp_path / "plain" / "model", "cpu", workers=1, plain=kernels == "plain")
        found = [translator.translations(LINES, DecodingConfig(beam_size=size)) for size in (1, 3)]
        translations.append([(best.text, best.log_prob) for lines in found for best, *_ in lines])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for plain, fast in zip(*translations, strict=True):
        assert plain[0] == fast[0]
        assert plain[1] == pytest.approx(fast[1], abs=1e-4)
