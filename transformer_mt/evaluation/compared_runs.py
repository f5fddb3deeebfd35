"""Reads the translations that are compared: of runs that `evaluate` has scored, or of files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformer_mt.corpora.text_files import read_lines
from transformer_mt.errors import EvaluationError
from transformer_mt.evaluation.comparing import System
from transformer_mt.evaluation.named_sets import NamedSet
from transformer_mt.evaluation.score_file import TestSetScores, read_scores
from transformer_mt.evaluation.scores import checksums_of
from transformer_mt.evaluation.test_sets import (
    TestSet,
    chosen_test_sets,
    hypotheses_file,
    model_in,
    read_named_sets,
    read_test_sets,
    results_dir,
)
from transformer_mt.settings.bounds import fingerprint
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import differences, load_config
from transformer_mt.storage.run_directory import weights_sha256


@dataclass(frozen=True)
class ComparedTest:
    """A test set, and the systems that have translated it; the first is the baseline."""

    name: str
    sources: list[str] | None
    """None if only files of translations are known."""
    references: list[list[str]]
    systems: list[System]
    target_language: str
    notes: list[str] = field(default_factory=list)
    """What the systems differ in besides what was trained, each as a line for the user."""
    named: NamedSet | None = None
    """What sacreBLEU calls the test set; None for one of a configuration."""


@dataclass(frozen=True)
class _Run:
    name: str
    model: Path
    config: Config
    scored: dict[str, TestSetScores]


def compared_files(paths: Sequence[Path], references: Sequence[Path], language: str) -> ComparedTest:
    """Read files of translations, and their references."""
    systems = [System(str(path), list(read_lines(path))) for path in paths]
    return ComparedTest("files", None, [list(read_lines(path)) for path in references], systems, language)


def compared_runs(paths: Sequence[Path], test: str | None, named: Sequence[str] = ()) -> list[ComparedTest]:
    """Read the translations of each test set that all of these runs or models have, or only of `test`.

    `named` are test sets of sacreBLEU that are read instead. Raises EvaluationError if `evaluate` has not translated
    one, if it has changed since, or if the runs have other references.
    """
    runs = [_read(path) for path in paths]
    if named:
        texts = [read_named_sets(named, run.config.corpus) for run in runs]
    else:
        names = _common_test_sets(runs, test)
        texts = [read_test_sets(Path(run.config.data_dir), names) for run in runs]
    return [_compared(name, runs, [text[name] for text in texts]) for name in texts[0]]


def _common_test_sets(runs: Sequence[_Run], test: str | None) -> list[str]:
    common = [name for name in runs[0].config.corpus.test if all(name in run.config.corpus.test for run in runs)]
    if not common:
        raise EvaluationError(
            f"{' and '.join(run.name for run in runs)} have no test set of the same name: compare files of translations"
        )
    return chosen_test_sets(common, test)


def _read(path: Path) -> _Run:
    model = model_in(path)
    if not (model / "config.yaml").is_file():
        raise EvaluationError(
            f"{path}: is neither a run with a model, nor a model, nor a file of translations; name one of these"
        )
    return _Run(str(path), model, load_config(model / "config.yaml"), read_scores(results_dir(model) / "scores.json"))


def _compared(name: str, runs: Sequence[_Run], texts: Sequence[TestSet]) -> ComparedTest:
    first = runs[0]
    systems, notes = [], []
    for run, text in zip(runs, texts, strict=True):
        _check_same_references(name, first, texts[0], run, text)
        lines = read_translations(run.name, run.model, name, text, run.scored.get(name))
        systems.append(System(run.name, lines, run.config.training.seed, _experiment(run.config)))
        notes += _notes(name, first, run)
    language = first.config.corpus.target_language
    return ComparedTest(name, texts[0].sources, texts[0].references, systems, language, notes, texts[0].named)


def _check_same_references(name: str, first: _Run, wanted: TestSet, run: _Run, found: TestSet) -> None:
    if found.references == wanted.references:
        return
    both = zip(zip(*wanted.references, strict=True), zip(*found.references, strict=True), strict=False)
    line = next((number for number, (one, other) in enumerate(both, start=1) if one != other), None)
    lines = [len(text.references[0]) for text in (wanted, found)]
    where = f"line {line} differs" if line else f"{lines[0]:,} and {lines[1]:,} lines"
    raise EvaluationError(
        f"{first.name} and {run.name} have different references for the test set {name} ({where}), so their scores "
        "cannot be compared: prepare both with the same test set, or compare files of translations"
    )


def read_translations(run: str, model: Path, name: str, text: TestSet, scored: TestSetScores | None) -> list[str]:
    """Return the translations of a test set that `evaluate` wrote for a model; `run` is what the user calls it.

    Raises EvaluationError if there are none, or if they or the test set have changed since they were `scored`.
    """
    file = hypotheses_file(model, name)
    chosen = f"--test-set {text.named.name}" if text.named else f"--test {name}"
    again = f"python -m transformer_mt.evaluate {run} {chosen}"
    if not file.is_file():  # a pipe, too, which may never end
        raise EvaluationError(f"{file}: is missing. Translate the test set first: {again}")
    lines = list(read_lines(file))
    if scored is not None and scored.checksums != checksums_of(text.sources, text.references, lines):
        raise EvaluationError(
            f"{file}: these translations, or the sentences of the test set, are not those that scores.json beside it "
            f"has the scores of. Translate the test set again: {again}; or compare files of translations"
        )
    return lines


def _experiment(config: Config) -> str:
    """Return the same text for all runs that differ in nothing but the seed and the directory of the run."""
    training = config.training.model_copy(update={"seed": 0})
    return fingerprint(config.model_copy(update={"training": training, "run_dir": "any"}))


def _notes(name: str, first: _Run, run: _Run) -> list[str]:
    """Return what the user should know about how the translations of a run were made."""
    notes = []
    ours, theirs = first.scored.get(name), run.scored.get(name)
    if theirs and (other_model := _other_model(theirs, run.model)):
        notes.append(
            f"warning: {run.name}: the translations are of an earlier model ({theirs.made_of or 'other weights'}), and "
            f"now there is another ({other_model}): run `python -m transformer_mt.evaluate {run.name}` again"
        )
    if ours and theirs and ours.decoding and theirs.decoding and ours.decoding != theirs.decoding:
        config = first.config
        changed = differences(
            config.model_copy(update={"decoding": ours.decoding}),
            config.model_copy(update={"decoding": theirs.decoding}),
        )
        said = "; ".join(text.replace(", now ", f" in {first.name}, ", 1) for text in changed.values())
        notes.append(f"note: {run.name} was decoded with other settings than {first.name}: {said}")
    return notes


def _other_model(scored: TestSetScores, model: Path) -> str | None:
    """Return what the weights of a model are made of, if they are not those that made the translations; else None."""
    made_of = _made_of(model)
    if scored.model_sha256 is not None:
        return None if scored.model_sha256 == weights_sha256(model) else made_of or "other weights"
    return None if scored.made_of == made_of or scored.made_of is None else made_of


def _made_of(model: Path) -> str | None:
    """Return what the weights of a model are the mean of; None for an export, which does not say it."""
    weights = model / "model.safetensors"
    if not weights.is_file():
        return None
    from transformer_mt.storage.weights import read_metadata  # here, because it imports PyTorch

    return read_metadata(weights).get("made_of")
