"""Gathers the content of a report from the files of runs, and fills the template: a page without scripts.

If something is missing or damaged, a sentence says so.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from transformer_mt.base.errors import CheckpointError, EvaluationError, UserError
from transformer_mt.base.wording import counted, duration
from transformer_mt.evaluation.comparing import Translated, compared_test, comparison, read_translations, spread
from transformer_mt.evaluation.evaluated_texts import TestSet, model_in, read_test_set, results_dir
from transformer_mt.evaluation.scores_json import Results, read_scores
from transformer_mt.reporting import charts
from transformer_mt.reporting.charts import CURVES, Chart, LogLine, lines_of, read_log
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import flat_settings, load_config
from transformer_mt.storage.checksums import CONFIG, MODEL, checkpoint_path, saved_steps
from transformer_mt.storage.files import read_json
from transformer_mt.storage.records import STARTS, Start
from transformer_mt.storage.weights import read_metadata, read_tensors
from transformer_mt.version import __version__

MARK = '<meta name="generator" content="transformer_mt report">'
"""Marks a page of this command, so that `report` replaces no other file."""


SECTIONS = {
    "training": "What was trained on what",
    "curves": "Learning curves",
    "scores": "Scores of the test sets",
    "translations": "Translations",
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
    __test__ = False  # pytest takes it for tests otherwise

    name: str
    scored: dict[str, dict[str, Any]]
    """For each run, the content of scores.json."""
    samples: list[Sample] = field(default_factory=list)
    worst: list[Sample] = field(default_factory=list)
    comparison: dict[str, Any] | None = None
    """The JSON of `evaluate --compare`."""


def open_run(path: Path, notes: Notes) -> Run:
    """Read the files of a run or a model. Raises CheckpointError if it is none; ConfigError."""
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
    run = Run(str(path), model if has_model else None, load_config(path / CONFIG))
    with left_out(notes["training"]):
        run.num_parameters, run.made_of = _weights(path, model)
    if is_run:
        with left_out(notes["training"]):
            run.starts = _starts(path / "run.json")
        with left_out(notes["curves"]):
            run.log, faults = read_log(path)
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
    names = dict.fromkeys(name for run in runs for name in run.results)
    return [_test(name, [run for run in runs if name in run.results], notes) for name in names]


def _test(name: str, runs: Sequence[Run], notes: Notes) -> TestReport:
    report = TestReport(name, {run.name: run.results[name].model_dump(mode="json", exclude_none=True) for run in runs})
    translated = _translated(name, runs, notes["translations"])
    if not translated:
        notes["translations"].append(f"The translations of {name} are left out, because none can be shown.")
        return report
    text = translated[0].text
    last = len(text.sources) - 1
    lines = sorted({round(number * last / (SAMPLES - 1)) for number in range(SAMPLES)})
    translations = {each.run: each.lines for each in translated}
    report.samples = [_sample(text, translations, line) for line in lines]
    report.worst = _worst(report.scored, text, translations)
    if len(translated) > 1:
        test = compared_test(name, translated)
        notes["scores"] += [f"{note}." for note in test.notes]
        with left_out(notes["scores"], "The paired tests are left out: "):
            report.comparison = comparison(test, ("bleu", "chrf"))
    return report


def _translated(name: str, runs: Sequence[Run], notes: list[str]) -> list[Translated]:
    """Return the translations of all runs that have translated the same text as the first of them."""
    translations = list[Translated]()
    for run in runs:
        with left_out(notes, f"The translations of {run.name} are left out: "):
            text = read_test_set(Path(run.config.data_dir), name)
            found = read_translations(run.name, run.config, name, text, run.results[name])
            if translations and text != translations[0].text:
                raise EvaluationError(f"its test set {name} has other sentences")
            translations.append(found)
    return translations


def _sample(text: TestSet, translations: dict[str, list[str]], line: int, note: str = "") -> Sample:
    """Return the sample for the line with this number, from 0."""
    lines = {name: translated[line] for name, translated in translations.items()}
    return Sample(line + 1, text.sources[line], text.references[line], lines, note)


def _worst(scored: dict[str, dict[str, Any]], text: TestSet, translations: dict[str, list[str]]) -> list[Sample]:
    notes = dict[int, list[str]]()
    for name in translations:
        for worst in scored[name].get("analysis", {}).get("worst", []):
            if 1 <= worst["line"] <= len(text.sources):
                notes.setdefault(worst["line"] - 1, []).append(f"chrF2 of {name}: {worst['chrf']:.1f}")
    return [_sample(text, translations, line, "; ".join(found)) for line, found in notes.items()]


def page_of(paths: Sequence[Path]) -> str:
    """Return the page about these runs. The same files always give the same text.

    Raises CheckpointError if a path is no run or model; ConfigError.
    """
    notes: Notes = {section: [] for section in SECTIONS}
    runs = [open_run(path, notes) for path in dict.fromkeys(paths)]
    tests = gather_tests(runs, notes)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"duration": duration, "number": number, "spread": spread, "with_code": with_code}
    style, template = ((files(__package__) / name).read_text("utf-8") for name in ("style.css", "template.html"))
    numbers = {run.name: number for number, run in enumerate(runs)}
    return environment.from_string(template).render(
        runs=runs,
        tests=tests,
        notes=notes,
        title=" and ".join(numbers) if len(numbers) < 3 else f"{len(numbers)} runs",
        version=__version__,
        mark=Markup(MARK),
        style=Markup(style),
        numbers=numbers,
        headlines={run.name: headline(run, tests) for run in runs},
        curves=curve_charts(runs),
        settings=settings_table(runs),
        num_colours=charts.NUM_COLOURS,
        sections=SECTIONS,
    )


def headline(run: Run, tests: Sequence[TestReport]) -> tuple[list[tuple[str, str]], str]:
    """The scores of a run, each with what it is, and a sentence with its size, its time and its corpus."""
    scores = [
        (f"{score['value']:.1f}", f"{metric} on {test.name}")
        for test in tests
        if run.name in test.scored
        for metric, score in list(test.scored[run.name]["scores"].items())[:1]
    ]
    corpus, last = run.config.corpus, run.last_update
    first, *others = (text.place for text in corpus.training_corpora)
    more = f" and {counted(len(others), 'other corpus', 'other corpora')}" if others else ""
    size = f"{run.num_parameters:,} parameters, " if run.num_parameters is not None else ""
    time = f" in {duration(last.seconds)}" if last and last.seconds is not None else ""
    return scores, f"{size}{corpus.source_language} to {corpus.target_language}, trained on {first}{more}{time}"


def with_code(text: str) -> Markup:
    """Return a sentence as HTML; text between backticks becomes code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def number(value: object) -> str:
    """Return a number with commas between thousands, or any other value of a file as plain text."""
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def settings_table(runs: Sequence[Run]) -> tuple[list[tuple[str, list[str]]], list[tuple[str, list[str]]]]:
    """Return the settings in which the runs differ, and the other settings: key, and the value of each run."""
    flat = [{key: _shown(value) for key, value in flat_settings(run.config).items()} for run in runs]
    keys = list(dict.fromkeys(key for each in flat for key in each))
    rows = [(key, [each.get(key, "–") for each in flat]) for key in keys]
    return [row for row in rows if len(set(row[1])) > 1], [row for row in rows if len(set(row[1])) == 1]


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def curve_charts(runs: Sequence[Run]) -> list[Chart]:
    """Draw a chart for each field of the logs that has numbers; for `skipped` and `split` only if one is not 0."""
    marks = [(start.from_update, at) for at, run in enumerate(runs) for start in run.starts if start.from_update]
    logs = {run.name: (at, lines_of(run.log)) for at, run in enumerate(runs)}
    found = list[Chart]()
    for key, title in CURVES.items():
        curves = {name: (at, lines[key]) for name, (at, lines) in logs.items() if key in lines}
        values = [value for _, (_, values) in curves.values() for value in values if value is not None]
        if values and (key not in ("skipped", "split") or any(values)):
            found.append(charts.lines(f"curve-{key.replace('_', '-')}", title, curves, marks=marks))
    return found
