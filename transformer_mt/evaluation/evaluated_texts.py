"""Finds test sets, the translations that `evaluate` has written, and which of their pairs were trained on."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.base.errors import EvaluationError
from transformer_mt.base.wording import counted
from transformer_mt.batches.encoded import EncodedCorpus, described, places_of_pairs
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.decoding.line_parts import Tags
from transformer_mt.evaluation.metrics import check_aligned
from transformer_mt.evaluation.scores_json import AlsoInTraining
from transformer_mt.preparing.prepared import (
    VALIDATION_TEXT,
    check_data,
    data_digests,
    files_of_test_set,
    read_prepared,
)
from transformer_mt.settings.corpus_settings import CorpusConfig
from transformer_mt.text.tokenizer import Tokenizer, tagged


@dataclass(frozen=True)
class TestSet:
    """The text of a test set, line by line."""

    __test__ = False  # pytest takes it for tests otherwise

    sources: list[str]
    references: list[list[str]]
    """One complete set of references, or several."""


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
    return results_dir(model) / f"{test}.hypotheses.txt"


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


def read_validation_set(data_dir: Path) -> TestSet:
    """Read the sources and references of the validation set. Raises a UserError if a file is missing or damaged."""
    check_data(data_dir, VALIDATION_TEXT)
    return _read(data_dir, VALIDATION_TEXT)


def _read(data_dir: Path, files: Sequence[str]) -> TestSet:
    sources, references = (list(read_lines(data_dir / file)) for file in files)
    check_aligned([sources, references], [str(data_dir / file) for file in files])
    return TestSet(sources, [references])


_SHOWN = 5  # lines that are named
_AT_A_TIME = 50_000  # pairs in memory

Line = tuple[str, int]
"""The name of a test set, and the number of a line in it, from 1."""

Wanted = dict[tuple[int, ...], set[Line]]
"""The lines that have these token ids."""


@dataclass(frozen=True)
class SeenTests:
    """What was found of each test set, and what to tell the user about it."""

    found: dict[str, AlsoInTraining]
    messages: list[str]


NOT_KNOWN = SeenTests({}, [])


def seen_in_training(
    data_dirs: Sequence[Path],
    tokenizer: Tokenizer,
    corpus: CorpusConfig,
    texts: Mapping[str, TestSet],
    trained_on: str | None = None,
) -> SeenTests:
    """Look for the test sets in the training text, which is in the first of `data_dirs` that has it.

    `corpus` is that of the run: the tags before its sources do not count. `trained_on` is the digest of the training
    data that run.json has; None if it is not known. Nothing is found if no directory has a training text that was
    encoded with this tokenizer, or if it is another text. Raises CorpusError if the text is damaged.
    """
    data_dir = next((each for each in data_dirs if _has_training_text(each, tokenizer)), None)
    if data_dir is None:
        return NOT_KNOWN
    if trained_on is not None and data_digests(data_dir)["train"] != trained_on:
        note = (
            f"note: {data_dir} was prepared anew since the run was trained, and holds another training text now: "
            "whether the test sets stand in that of the run is not known"
        )
        return SeenTests({}, [note])
    tags, before = Tags.of(corpus), dict.fromkeys(text.tag for text in corpus.training_corpora)
    plain = {name: [tags.parted(line)[1] for line in text.sources] for name, text in texts.items()}
    sources, pairs = find_seen(
        EncodedCorpus.load(data_dir / "train"),
        lines_by_ids(
            (name, tokenizer.encode_source([tagged(tag, line) for line in lines]))
            for name, lines in plain.items()
            for tag in before
        ),
        lines_by_ids(
            (name, tokenizer.encode_target(lines)) for name, text in texts.items() for lines in text.references
        ),
    )
    found, notes = {}, []
    for name, text in texts.items():
        in_set = [sorted(line for of, line in seen if of == name) for seen in (sources, pairs)]
        found[name] = AlsoInTraining(
            sources=len(in_set[0]), pairs=len(in_set[1]), source_lines=in_set[0], pair_lines=in_set[1]
        )
        if in_set[0]:
            first = pairs[name, in_set[1][0]] if in_set[1] else sources[name, in_set[0][0]]
            place = described(places_of_pairs(data_dir, np.array([first])))
            notes.append(_message(name, text, found[name], place, data_dir))
    return SeenTests(found, notes)


def _has_training_text(data_dir: Path, tokenizer: Tokenizer) -> bool:
    if not (data_dir / "train").is_dir():
        return False
    prepared = read_prepared(data_dir)
    return prepared is not None and prepared.tokenizer_digest == tokenizer.digest


def _message(name: str, text: TestSet, found: AlsoInTraining, place: str, data_dir: Path) -> str:
    kind, lines = ("pairs", found.pair_lines) if found.pairs else ("sources", found.source_lines)
    shown = ", ".join(map(str, lines[:_SHOWN])) + (", …" if len(lines) > _SHOWN else "")
    begin = "warning" if found.pairs else "note"
    return (
        f"{begin}: {name}: {found.pairs:,} of {counted(len(text.sources), 'pair')} and {found.sources:,} of the "
        f"sources also stand in the training text of the run ({data_dir / 'train'}). The {kind} are on "
        f"line{'s' if len(lines) > 1 else ''} {shown} of the test set; line {lines[0]} is {place}. Scores of text that "
        "was trained on tell little about new text"
    )


def lines_by_ids(sets: Iterable[tuple[str, Sequence[Sequence[int]]]]) -> Wanted:
    """Return the lines of these test sets by their token ids, EOS included."""
    lines: Wanted = defaultdict(set)
    for name, sentences in sets:
        for line, ids in enumerate(sentences, start=1):
            lines[tuple(ids)].add((name, line))
    return lines


def find_seen(corpus: EncodedCorpus, wanted: Wanted, wanted_targets: Wanted) -> tuple[dict[Line, int], dict[Line, int]]:
    """Return the first training pair, from 0, that has the source of each line; and the first that is the whole pair.

    `wanted` are the sources that are looked for, `wanted_targets` the targets, both as `lines_by_ids` returns them.

    Reads all sources of the training text. Memory does not grow with their number.
    """
    sources, pairs = dict[Line, int](), dict[Line, int]()
    wanted = {ids: lines for ids, lines in wanted.items() if len(ids) > 1}  # blank lines are not looked for
    lengths = np.array(sorted({len(ids) for ids in wanted}))
    keys = np.array([_keys(np.array(ids), np.array([len(ids)]))[0] for ids in wanted])
    for start in range(0, len(corpus) if wanted else 0, _AT_A_TIME):
        numbers = np.arange(start, min(start + _AT_A_TIME, len(corpus)))
        numbers = numbers[np.isin(corpus.source.lengths(numbers), lengths)]
        alike = numbers[np.isin(_keys(*corpus.source.gather(numbers)), keys)]
        for number in alike.tolist():
            source, target = (
                tuple(side.gather(np.array([number]))[0].tolist()) for side in (corpus.source, corpus.target)
            )
            for line in wanted.get(source, ()):
                sources.setdefault(line, number)
                if line in wanted_targets.get(target, ()):
                    pairs.setdefault(line, number)
    return sources, pairs


def _keys(ids: NDArray[Any], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a number for each sentence, by which sentences can be compared quickly: few others have the same."""
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(ids)) - np.repeat(starts, lengths)
    # Numbers without signs wrap around. The factor is odd, so that no position loses the bits of its id.
    factors = positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
    terms = (ids.astype(np.uint64) + np.uint64(1)) * factors
    return np.add.reduceat(terms, starts) if len(starts) else np.empty(0, np.uint64)
