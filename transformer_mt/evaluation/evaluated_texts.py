"""Finds test sets and their translations by `evaluate`, and detects test sentences that are also training text."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.base.errors import EvaluationError
from transformer_mt.base.wording import counted
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.evaluation.metrics import check_aligned
from transformer_mt.evaluation.scores_json import AlsoInTraining
from transformer_mt.marian import as_model_dir
from transformer_mt.preparing.prepared import check_data, data_digests, files_of, read_prepared
from transformer_mt.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TestSet:
    """The text of a test set, line by line."""

    __test__ = False  # pytest takes it for tests otherwise

    sources: list[str]
    references: list[str]


def model_in(path: Path) -> Path:
    """Return the model directory at `path`, in the run at `path`, or made of the MarianMT directory at `path`."""
    return path / "model" if (path / "model").is_dir() else as_model_dir(path)


def results_dir(model: Path) -> Path:
    """Return the directory for the results of a model: in its run if it is in one, else in the model."""
    model = Path(os.path.abspath(model))
    in_run = model.name == "model" and (model.parent / "config.yaml").is_file()
    return (model.parent if in_run else model) / "evaluation"


def hypotheses_file(model: Path, test: str) -> Path:
    return results_dir(model) / f"{test}.hypotheses.txt"


def chosen_test_sets(names: Sequence[str], test: str | None) -> list[str]:
    """Return the names of all test sets, or only `test`. Raises EvaluationError if there is no such test set."""
    if not names:
        raise EvaluationError(
            "the configuration has no test set: name one in corpus.test, run `prepare` with another data_dir, and give "
            "data_dir=DIRECTORY here; or score files with --hypothesis and --reference"
        )
    if test is None:
        return [*names]
    if test not in names:
        raise EvaluationError(f"--test {test}: no such test set. The configuration has: {', '.join(names)}")
    return [test]


def check_same_tokenizer(model: Path, model_name: str, data_dir: Path) -> None:
    """Raises EvaluationError if the data were prepared with another tokenizer after the model was trained."""
    prepared = read_prepared(data_dir)
    if prepared is None:
        return
    digest = Tokenizer.load(model).digest
    if prepared.tokenizer_digest != digest:
        raise EvaluationError(
            f"{data_dir} was prepared with another tokenizer (digest {prepared.tokenizer_digest[:8]}) than that of "
            f"{model_name} ({digest[:8]}), so it was prepared again after the training, and its test sets may have "
            f"changed. To score these test sets, give data_dir={data_dir}; otherwise give the data_dir with which the "
            "model was trained"
        )


def read_test_set(data_dir: Path, name: str) -> TestSet:
    """Read the sources and references of a test set. Raises a UserError if a file is missing or damaged."""
    files = files_of(f"test/{name}")
    for file in files:
        if not (data_dir / file).is_file():
            raise EvaluationError(
                f"{data_dir / file} is missing. Write it with `python -m transformer_mt.prepare CONFIG`; if the data "
                "are elsewhere, give data_dir=DIRECTORY; or score files with --hypothesis and --reference"
            )
    return read_texts(data_dir, files)


def read_texts(data_dir: Path, files: Sequence[str]) -> TestSet:
    """Read two files, the sources and their references. Raises a UserError if a file is missing or damaged."""
    check_data(data_dir, files)
    sources, references = (list(read_lines(data_dir / file)) for file in files)
    check_aligned([sources, references], [str(data_dir / file) for file in files])
    return TestSet(sources, references)


def also_in_training(data_dir: Path, names: Sequence[str], trained_on: str | None) -> dict[str, AlsoInTraining]:
    """Return how much of each test set is also in the training text of a run, as counted by `prepare`.

    `trained_on` is the digest of the training data in run.json; None if unknown. The result is empty if data_dir has
    no training text, or if it was prepared from other text after the run was trained.
    """
    prepared = read_prepared(data_dir)
    try:
        digest = data_digests(data_dir)["train"]
    except (OSError, ValueError):
        return {}
    if prepared is None or trained_on not in (None, digest):
        return {}
    if prepared.filters.held_out:  # `prepare` has removed all training pairs with a text of the test sets
        return dict.fromkeys(names, AlsoInTraining(sources=0, targets=0, pairs=0))
    return {name: AlsoInTraining.model_validate(prepared.also_in_training[f"test/{name}"]) for name in names}


def overlap_warning(name: str, found: AlsoInTraining, data_dir: Path) -> str | None:
    """Return a warning if sources or pairs of a test set are also in the training text; else None."""
    if not found.sources and not found.pairs:
        return None
    return (
        f"{name}: {counted(found.pairs, 'pair')} and {counted(found.sources, 'source')} are also in the training text "
        f"of the run ({data_dir / 'train'}). Scores of training text say little about new text: prepare with "
        "filters.held_out=true into another data_dir, and train again"
    )
