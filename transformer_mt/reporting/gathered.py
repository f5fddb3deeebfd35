"""What a report says, as plain values, and sentences about what is left out of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformer_mt.errors import UserError
from transformer_mt.evaluation.scores import Results
from transformer_mt.reporting.charts import Chart
from transformer_mt.settings.experiment import Config
from transformer_mt.storage.records import LogLine, Start, Summary

SECTIONS = {
    "training": "What was trained on what",
    "curves": "Learning curves",
    "scores": "Scores of the test sets",
    "weaknesses": "By length and by the rarest piece",
    "translations": "Translations",
    "attention": "Attention",
    "corpus": "Positions and corpus",
}
"""Of the page, with their titles."""
Notes = dict[str, list[str]]
"""By section: what is left out of it, and how to get it, each as a sentence for the reader."""


@contextmanager
def left_out(notes: list[str], what: str = "") -> Iterator[None]:
    """Turn an error about files of the user into a note that begins with `what`: the rest of the block is left out."""
    try:
        yield
    except (UserError, OSError) as error:
        notes.append(f"{what}{error}.")


@dataclass
class Run:
    """A run, or a model without its run."""

    name: str
    """As the user named it."""
    directory: Path
    model: Path | None
    """The directory of its model; None if there is none yet."""
    config: Config
    num_parameters: int | None = None
    made_of: str = ""
    """Which checkpoints the model is the mean of; empty if that is not known."""
    starts: list[Start] = field(default_factory=list)
    log: list[LogLine] = field(default_factory=list)
    results: Results = field(default_factory=dict)
    """By test set. All fields from `num_parameters` on are empty if they are not known."""

    @property
    def last_update(self) -> LogLine | None:
        """The last line of training updates."""
        return next((line for line in reversed(self.log) if line.seconds is not None), None)

    @property
    def best_validation(self) -> LogLine | None:
        """The last validation that was the best so far."""
        return next((line for line in reversed(self.log) if line.best), None)

    @property
    def valid_seconds(self) -> float:
        """The time that all validations took together."""
        return sum(line.valid_seconds or 0.0 for line in self.log)


@dataclass(frozen=True)
class Sample:
    """A line of a test set, and what each run made of it."""

    line: int
    """From 1."""
    source: str
    reference: str
    translations: dict[str, str]
    """By run."""
    note: str = ""


@dataclass
class TestReport:
    """All that is said about one test set."""

    __test__ = False  # pytest takes it for tests otherwise

    name: str
    scored: dict[str, dict[str, Any]]
    """By run, what scores.json says."""
    samples: list[Sample] = field(default_factory=list)
    worst: list[Sample] = field(default_factory=list)
    comparison: dict[str, Any] | None = None
    """What `evaluate --compare` writes as JSON."""


@dataclass(frozen=True)
class Shown:
    """A sentence that a model has translated for the report, and its attention."""

    run: str
    source: str
    n_best: list[tuple[str, float]]
    """Translations and their scores, best first."""
    attention: list[Chart]


@dataclass(frozen=True)
class CorpusReport:
    """What prepare.json says about the data of a run."""

    data_dir: str
    summary: Summary
    lengths: Chart | None
    """How many training sentences of each side have so many pieces."""
    sampled: int
    """How many pairs were counted for the lengths, if not all; else 0."""
