"""Reads the content of a report from runs, as plain values, with sentences about missing content."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from transformer_mt.base.errors import CheckpointError, UserError
from transformer_mt.base.wording import counted
from transformer_mt.evaluation.evaluated_texts import model_in, results_dir
from transformer_mt.evaluation.scores_json import Results, read_scores
from transformer_mt.reporting.charts import Chart
from transformer_mt.reporting.log_lines import CURVES, LogLine, read_log
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
    "weaknesses": "By length and by the rarest piece",
    "translations": "Translations",
    "attention": "Attention",
    "corpus": "Corpus",
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


Form = TypeVar("Form")


def open_runs(paths: Sequence[Path], notes: Notes) -> list[Run]:
    """Open each directory. Raises CheckpointError if it is no run or model, or is given twice; ConfigError."""
    seen: dict[Path, Path] = {}
    for path in paths:
        if (real := path.resolve()) in seen:
            raise CheckpointError(f"{path} is given twice, first as {seen[real]}; give each run once")
        seen[real] = path
    return [_open(path, notes) for path in paths]


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
            run.starts = read_record(path / "run.json", STARTS, "train")
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


def read_record(path: Path, form: TypeAdapter[Form], writer: str) -> Form:
    """Return the content of a JSON file of that form, which the stage `writer` writes. Raises CheckpointError."""
    try:
        return form.validate_python(read_json(path))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; `{writer}` writes it") from None
    except (OSError, ValueError):
        raise CheckpointError(f"{path} is damaged, or was not written by `{writer}`") from None
