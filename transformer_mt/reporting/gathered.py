"""What a report says, as plain values: each part of it, or the reason why it is missing."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformer_mt.settings.experiment import Config
from transformer_mt.storage.records import LogLine, Start, Summary


@dataclass(frozen=True)
class Missing:
    """A part that cannot be shown."""

    reason: str
    """A sentence for the reader: what is missing, and how to get it."""


@dataclass(frozen=True)
class Run:
    """A run, or a model without its run."""

    name: str
    """As the user named it."""
    directory: Path
    model: Path | None
    """The directory of its model; None if there is none yet."""
    is_run: bool
    """False if only a model was named."""
    config: Config
    num_parameters: int | Missing
    made_of: str
    """Which checkpoints the model is the mean of; empty if that is not known."""
    starts: list[Start] | Missing


@dataclass(frozen=True)
class Curve:
    """The values of one field of log.jsonl, thinned. Each is a value that stands in the log."""

    steps: list[int]
    values: list[float | None]
    """None where the log has a number that is not finite."""


@dataclass(frozen=True)
class Log:
    """What log.jsonl says."""

    curves: dict[str, Curve]
    """By the name of the field."""
    num_lines: int
    num_unread: int
    """Lines that are not as `train` writes them, such as a last one that is half written."""
    last: LogLine | None
    """The last line of training updates."""
    best: LogLine | None
    """The last validation that was the best so far."""
    valid_seconds: float
    """Seconds that all validations took together."""


@dataclass(frozen=True)
class Scored:
    """What scores.json of one run says about one test set."""

    run: str
    scores: dict[str, dict[str, Any]]
    """By metric: value, signature, and interval if it was computed."""
    details: dict[str, Any]
    """The object in scores.json."""


@dataclass(frozen=True)
class TestText:
    """A test set, and its translations by run."""

    __test__ = False  # pytest takes it for tests otherwise

    sources: list[str]
    references: list[str]
    translations: dict[str, list[str]]


@dataclass(frozen=True)
class Sample:
    """A line of a test set, and what each run made of it."""

    line: int
    """From 1."""
    source: str
    reference: str
    translations: list[tuple[str, str]]
    """Name of the run, and its translation."""
    note: str = ""


@dataclass(frozen=True)
class TestReport:
    """All that is said about one test set."""

    __test__ = False

    name: str
    scored: list[Scored]
    samples: list[Sample] | Missing
    worst: list[Sample]
    comparison: dict[str, Any] | Missing | None
    """What `evaluate --compare` writes as JSON; None if there is nothing to compare."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Shown:
    """A sentence that a model has translated for the report, and its attention."""

    run: str
    source: str
    n_best: list[tuple[str, float]]
    """Translations and their scores, best first."""
    attention: dict[str, Any] | Missing
    """What the page's script draws (reporting/sentences.py)."""


@dataclass(frozen=True)
class CorpusReport:
    """What prepare.json says about the data of a run."""

    data_dir: str
    summary: Summary
    lengths: dict[str, list[tuple[int, int]]] | Missing
    """By side: how many training sentences have so many pieces."""
    sampled: int = 0
    """How many pairs were counted for the lengths, if not all; else 0."""
