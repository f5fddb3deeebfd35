"""Gathers the content of a report from runs, as plain values, with sentences about missing content.

L layers  H heads  N rows  M columns
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from transformer_mt.base.errors import CheckpointError, EvaluationError, TranslationError, UserError
from transformer_mt.base.languages import has_spaces, split_units
from transformer_mt.base.wording import counted
from transformer_mt.decoding.translator import PairAttention, Translator
from transformer_mt.evaluation.comparing import ComparedTest, comparison, read_translations
from transformer_mt.evaluation.evaluated_texts import TestSet, model_in, read_test_sets, results_dir
from transformer_mt.evaluation.scores_json import Results, read_scores
from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.reporting import charts
from transformer_mt.reporting.charts import Chart
from transformer_mt.reporting.plot_attention import Side, Word, joined, words_of_pieces
from transformer_mt.reporting.plot_textbook import CURVES, LogLine, read_log
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.checksums import CONFIG, MODEL, checkpoint_path, saved_steps
from transformer_mt.storage.files import read_json
from transformer_mt.storage.records import STARTS, Start
from transformer_mt.storage.weights import read_metadata, read_tensors

SECTIONS = {
    "training": "What was trained on what",
    "curves": "Learning curves",
    "scores": "Scores of the test sets",
    "translations": "Translations",
    "attention": "Attention",
}
"""The sections of the page, with their titles."""
Notes = dict[str, list[str]]
"""For each section, sentences for the reader: what is missing, and how to get it."""


@contextmanager
def left_out(notes: list[str], what: str = "") -> Iterator[None]:
    """Turn an error about the user's files into a note that begins with `what`, and skip the rest of the block."""
    try:
        yield
    except (UserError, OSError) as error:
        notes.append(f"{what}{error}.")


@dataclass
class Run:
    """A run, or a model without its run. Fields from `num_parameters` on are None or empty if unknown."""

    name: str
    """As given on the command line."""
    directory: Path
    model: Path | None
    """The directory of its model; None if there is none yet."""
    config: Config
    num_parameters: int | None = None
    made_of: str = ""
    """A description of the checkpoints of which the model was made."""
    starts: list[Start] = field(default_factory=list)
    log: list[LogLine] = field(default_factory=list)
    results: Results = field(default_factory=dict)
    """For each test set, the content of scores.json."""

    @property
    def last_update(self) -> LogLine | None:
        """The last line of the log about training updates, not about a validation."""
        return next((line for line in reversed(self.log) if line.seconds is not None), None)

    @property
    def best_validation(self) -> LogLine | None:
        """The last validation that was the best so far."""
        return next((line for line in reversed(self.log) if line.best), None)

    @property
    def valid_seconds(self) -> float:
        """The total time of all validations."""
        return sum(line.valid_seconds or 0.0 for line in self.log)


@dataclass(frozen=True)
class Sample:
    """A line of a test set, and its translation by each run."""

    line: int
    """From 1."""
    source: str
    reference: str
    translations: dict[str, str]
    note: str = ""


@dataclass
class TestReport:
    """The content of the report about one test set."""

    __test__ = False  # pytest takes it for tests otherwise

    name: str
    scored: dict[str, dict[str, Any]]
    """For each run, the content of scores.json."""
    samples: list[Sample] = field(default_factory=list)
    worst: list[Sample] = field(default_factory=list)
    comparison: dict[str, Any] | None = None
    """The JSON of `evaluate --compare`."""


@dataclass(frozen=True)
class Shown:
    """A sentence that a model has translated for the report, and its attention."""

    run: str
    source: str
    n_best: list[tuple[str, float]]
    """Translations and their scores, best first."""
    attention: list[Chart]


def open_runs(paths: Sequence[Path], notes: Notes) -> list[Run]:
    """Open each directory, once. Raises CheckpointError if it is no run or model; ConfigError."""
    return [_open(path, notes) for path in dict.fromkeys(paths)]


def _open(path: Path, notes: Notes) -> Run:
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such directory; give the directory of a run, such as runs/<name>")
    is_run = not (path / MODEL).is_file() and any(
        (path / name).exists() for name in ("run.json", "log.jsonl", "checkpoints", "model")
    )
    if not (path / CONFIG).is_file() or not (is_run or (path / MODEL).is_file()):
        raise CheckpointError(
            f"{path} is neither the directory of a run (written by `train`) nor of a model (written by `average`); "
            "give a directory such as runs/<name>"
        )
    model = path / "model" if is_run else path
    has_model = (model / MODEL).is_file() and (model / CONFIG).is_file()
    run = Run(str(path), path, model if has_model else None, load_config(path / CONFIG))
    with left_out(notes["training"]):
        run.num_parameters, run.made_of = _weights(path, model)
    if is_run:
        with left_out(notes["training"]):
            run.starts = _starts(path / "run.json")
        with left_out(notes["curves"]):
            run.log, faults = read_log(path, CURVES)
            if faults:
                lines = counted(len(faults), "line")
                notes["curves"].append(f"{lines} of the log of {run.name} cannot be read: {faults[0]}.")
    else:
        notes["curves"].append(f"{path} is the directory of a model, which has no log: give the directory of its run.")
    with left_out(notes["scores"]):
        scores = results_dir(model_in(path)) / "scores.json"
        if not scores.is_file():
            first = "" if run.model else f"run `python -m transformer_mt.average {run.name}`, then "
            raise CheckpointError(
                f"{run.name} is not evaluated yet: {first}run `python -m transformer_mt.evaluate {run.name} --analyse`"
            )
        run.results = read_scores(scores)
    return run


def _weights(path: Path, model: Path) -> tuple[int, str]:
    """The number of parameters of the model, or else of the newest checkpoint, and of what checkpoints it was made."""
    file, steps = model / MODEL, saved_steps(path)
    if not file.is_file():
        if not steps:
            raise CheckpointError(f"{path} has neither a model nor a checkpoint yet")
        file = checkpoint_path(path, steps[-1]) / MODEL
    num_parameters = sum(tensor.numel() for tensor in read_tensors(file).values())
    return num_parameters, read_metadata(file).get("made_of", "")


def _starts(path: Path) -> list[Start]:
    """Return the content of a run.json. Raises CheckpointError."""
    try:
        return STARTS.validate_python(read_json(path))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; `train` writes it") from None
    except (OSError, ValueError):
        raise CheckpointError(f"{path} is damaged, or was not written by `train`") from None


SAMPLES = 8  # number of lines of each test set to show


def gather_tests(runs: Sequence[Run], notes: Notes) -> list[TestReport]:
    """Gather all test sets on which a run was evaluated."""
    names = dict.fromkeys(name for run in runs for name in run.results)
    return [_test(name, [run for run in runs if name in run.results], notes) for name in names]


def _test(name: str, runs: Sequence[Run], notes: Notes) -> TestReport:
    report = TestReport(name, {run.name: run.results[name].model_dump(mode="json", exclude_none=True) for run in runs})
    text, translations = _texts(name, runs, notes["translations"])
    if text is None:
        notes["translations"].append(f"The translations of {name} are left out, because none can be shown.")
        return report
    last = len(text.sources) - 1
    lines = sorted({round(number * last / (SAMPLES - 1)) for number in range(SAMPLES)})
    report.samples = [_sample(text, translations, line) for line in lines]
    report.worst = _worst(report.scored, text, translations)
    if len(translations) > 1:
        _, language = runs[0].config.corpus.languages_of_test(name)
        test = ComparedTest(name, text.references, list(translations.items()), language)
        with left_out(notes["scores"], "The paired tests are left out: "):
            report.comparison = comparison(test, ("bleu", "chrf"))
    return report


def _texts(name: str, runs: Sequence[Run], notes: list[str]) -> tuple[TestSet | None, dict[str, list[str]]]:
    """Return the text of the test set, and the translations of all runs that have translated this text."""
    first: TestSet | None = None
    translations = dict[str, list[str]]()
    for run in runs:
        with left_out(notes, f"The translations of {run.name} are left out: "):
            own = read_test_sets(Path(run.config.data_dir), [name])[name]
            lines = read_translations(run.name, model_in(run.directory), name, own, run.results[name])
            if first is not None and own != first:
                raise EvaluationError(f"its test set {name} has other sentences")
            first, translations[run.name] = own, lines
    return first, translations


def _sample(text: TestSet, translations: dict[str, list[str]], line: int, note: str = "") -> Sample:
    """Return the sample for the line with this number, from 0."""
    lines = {name: translated[line] for name, translated in translations.items()}
    return Sample(line + 1, text.sources[line], text.references[0][line], lines, note)


def _worst(scored: dict[str, dict[str, Any]], text: TestSet, translations: dict[str, list[str]]) -> list[Sample]:
    """Return the worst lines of each run, according to its analysis."""
    notes = dict[int, list[str]]()
    for name in translations:
        for worst in scored[name].get("analysis", {}).get("worst", []):
            if 1 <= worst["line"] <= len(text.sources):
                notes.setdefault(worst["line"] - 1, []).append(f"chrF2 of {name}: {worst['chrf']:.1f}")
    return [_sample(text, translations, line, "; ".join(found)) for line, found in notes.items()]


N_BEST = 3
SENTENCES = 3  # the number of sentences of the test set to translate if the user gives none
MOST_PIECES = 100  # of a sentence or a translation: a drawing of more pieces would be unreadable
_UNITS = range(5, 25)  # the lengths, in words, of sentences to choose from the test set


def choose(tests: Sequence[TestReport], runs: Sequence[Run]) -> list[str]:
    """Choose sentences of the test sets: the first samples that are neither short nor long."""
    spaced = has_spaces(runs[0].config.corpus.source_language)
    sources = list(dict.fromkeys(sample.source for test in tests for sample in test.samples))
    usual = [source for source in sources if len(split_units(source, spaced)) in _UNITS]
    return (usual or sources)[:SENTENCES]


def translate(runs: Sequence[Run], sentences: Sequence[str], notes: Notes) -> list[Shown]:
    """Translate each sentence with each model."""
    if not sentences:
        notes["translations"].append("There are no sentences of a test set: give some with --sentence TEXT.")
    found = list[Shown]()
    for run in runs if sentences else ():
        if run.model is None:
            notes["translations"].append(
                f"{run.name} has no model yet: run `python -m transformer_mt.average {run.name}`."
            )
            continue
        with (
            left_out(notes["translations"], f"{run.name} translates nothing here: "),
            Translator.load(run.model, "cpu", workers=1) as translator,
        ):
            for sentence in sentences:
                with left_out(notes["translations"], f"{run.name} does not translate “{sentence}”: "):
                    found.append(_shown(run, translator, sentence, f"s{len(found)}", notes))
    return found


def _shown(run: Run, translator: Translator, sentence: str, key: str, notes: Notes) -> Shown:
    decoding = translator.decoding
    beam_size = max(decoding.beam_size, N_BEST)
    [translations] = translator.translations([sentence], decoding, beam_size=beam_size, n_best=N_BEST)
    corpus, attention = run.config.corpus, list[Chart]()
    spaced = has_spaces(corpus.source_language), has_spaces(corpus.target_language)
    with left_out(notes["attention"], f"{run.name}, “{sentence}”: "):
        weights = translator.attention(sentence, decoding=decoding)
        if max(len(weights.source), len(weights.target)) > MOST_PIECES:
            raise TranslationError(f"attention is drawn only up to {MOST_PIECES} pieces; choose a shorter sentence")
        attention = charts_of(weights, spaced, key)
    return Shown(run.name, sentence, [(each.text, each.score) for each in translations], attention)


def charts_of(found: PairAttention, spaced: tuple[bool, bool], key: str) -> list[Chart]:
    """Draw attention to the source between pieces and, if the model has it, self-attention between words."""
    source = words_of_pieces(found.source, spaced[0], ends=True)
    target = words_of_pieces(found.target, spaced[1], ends=True)
    before = words_of_pieces(found.target_before, spaced[1], begins=True)
    rows, columns = Side("translation", _readable(found.target)), Side("source", _readable(found.source))
    return [
        charts.attention(f"{key}-cross", "From the translation to the source", found.cross_LHTS, rows, columns),
        *_of_words(f"{key}-encoder", "From the source to itself", found.encoder_LHSS, source, source),
        *_of_words(f"{key}-decoder", "From the translation to what precedes it", found.decoder_LHTT, target, before),
    ]


def _of_words(
    key: str, title: str, weights_LHTS: FloatArray, rows: Sequence[Word], columns: Sequence[Word]
) -> list[Chart]:
    if not len(weights_LHTS):
        return []
    weights_LHNM = np.stack([joined(weights_HTS, rows, columns) for weights_HTS in weights_LHTS])
    words, seen = Side("word", [word.text for word in rows]), Side("looks at", [word.text for word in columns])
    return [charts.attention(key, title, weights_LHNM, words, seen)]


def _readable(pieces: Sequence[str]) -> list[str]:
    return [piece.replace("\u2581", "\u00b7") for piece in pieces]
