"""Finds the test sets of a run, and the translations of them that `evaluate` has written."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.corpora.text_files import read_lines
from transformer_mt.data.prepared import VALIDATION_TEXT, check_data, files_of_test_set, read_prepared
from transformer_mt.data.tags import tagged
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import EvaluationError
from transformer_mt.evaluation.metrics import check_aligned
from transformer_mt.evaluation.named_sets import NamedSet, file_name, find_named, read_named
from transformer_mt.settings.corpus import CorpusConfig


@dataclass(frozen=True)
class TestSet:
    """The text of a test set, line by line."""

    __test__ = False  # pytest takes it for tests otherwise

    sources: list[str]
    references: list[list[str]]
    """One complete set of references, or several."""
    named: NamedSet | None = None
    """What sacreBLEU calls it; None for a test set of a configuration."""


def model_in(path: Path) -> Path:
    """Return the model directory at `path`, or in the run at `path`."""
    return path / "model" if (path / "model").is_dir() else path


def results_dir(model: Path) -> Path:
    """Return the directory for the results of a model: in its run if it lies in one, else in the model."""
    model = Path(os.path.abspath(model))
    in_run = model.name == "model" and (model.parent / "config.yaml").is_file()
    return (model.parent if in_run else model) / "evaluation"


def hypotheses_file(model: Path, test: str) -> Path:
    """Return the file for the translations of a test set by a model."""
    return results_dir(model) / f"{file_name(test)}.hypotheses.txt"


def chosen_test_sets(names: Sequence[str], test: str | None) -> list[str]:
    """Return all test sets of a configuration, or only `test`. Raises EvaluationError if there is none such."""
    if not names:
        raise EvaluationError("corpus.test of the configuration names no test set: give --hypothesis and --reference")
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
            f"{data_dir} is prepared with another tokenizer (digest {prepared.tokenizer_digest[:8]}) than "
            f"{model_name} was trained with ({digest[:8]}): it was prepared again since then, and its test sets "
            f"may have changed. To score these test sets, give data_dir={data_dir}; or give the data_dir that "
            "belongs to the model"
        )


def read_test_sets(data_dir: Path, names: Sequence[str]) -> dict[str, TestSet]:
    """Read the sources and references of each test set. Raises a UserError if a file is missing or damaged."""
    files = {name: files_of_test_set(name) for name in names}
    all_files = [file for both in files.values() for file in both]
    for file in all_files:
        if not (data_dir / file).is_file():
            raise EvaluationError(
                f"{data_dir / file} is missing. `python -m transformer_mt.prepare CONFIG` writes it; if the data are "
                "elsewhere, give data_dir=DIRECTORY; or score files with --hypothesis and --reference"
            )
    check_data(data_dir, all_files)
    return {name: _read(data_dir, both) for name, both in files.items()}


def read_named_sets(names: Sequence[str], corpus: CorpusConfig) -> dict[str, TestSet]:
    """Read test sets of sacreBLEU in the languages of a corpus, by their names in scores.json.

    If all of its training text in these languages has one tag, each source gets this tag. Raises EvaluationError if one
    is unknown, or cannot be had.
    """
    languages = corpus.source_language, corpus.target_language
    tags = {text.tag for text in corpus.training_corpora if corpus.languages_of(text) == languages}
    tag = next(iter(tags)) if len(tags) == 1 else None
    found = {}
    for name in names:
        named = find_named(name, languages)
        sources, references = read_named(named)
        check_aligned([sources, *references], ["source", *(f"reference {n + 1}" for n in range(len(references)))])
        found[named.key] = TestSet([tagged(tag, source) for source in sources], references, named)
    return found


def read_validation_set(data_dir: Path) -> TestSet:
    """Read the sources and references of the validation set. Raises a UserError if a file is missing or damaged."""
    check_data(data_dir, VALIDATION_TEXT)
    return _read(data_dir, VALIDATION_TEXT)


def _read(data_dir: Path, files: Sequence[str]) -> TestSet:
    sources, references = (list(read_lines(data_dir / file)) for file in files)
    check_aligned([sources, references], [str(data_dir / file) for file in files])
    return TestSet(sources, [references])
