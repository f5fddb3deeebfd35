"""Reads log.jsonl into types, and lists the curves that are drawn from it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError, create_model

from transformer_mt.base.errors import UserError
from transformer_mt.settings.training_settings import VALIDATION_METRICS
from transformer_mt.storage.files import read_regular
from transformer_mt.storage.records import Count, Drawn, Record

Line = tuple[Sequence[float], Sequence[float | None]]
"""The x and the y values. None is a gap."""


class LogLine(Record):
    """A line of log.jsonl about training updates or a validation. None means that a number was not finite."""

    step: Count
    loss: Drawn | None = None
    nll: Drawn | None = None
    learning_rate: Drawn | None = None
    gradient_norm: Drawn | None = None
    tokens_per_second: Drawn | None = None
    skipped: Count | None = None
    split: Count | None = None
    tokens: Count | None = None
    seconds: Drawn | None = None
    valid_perplexity: float | None = None
    valid_seconds: Drawn | None = None
    best: bool = False


VALIDATION_CURVES = {f"valid_{metric}": shown.title for metric, shown in VALIDATION_METRICS.items()}
CURVES = {
    "loss": "loss in training, with label smoothing (nats per target token)",
    "nll": "negative log-likelihood in training (nats per target token)",
    **VALIDATION_CURVES,
    "learning_rate": "learning rate",
    "tokens_per_second": "target tokens per second",
    "gradient_norm": "norm of the gradient, before clipping",
    "skipped": "updates that were skipped so far",
    "split": "micro-batches that were split so far",
}
"""The curves that are drawn from the log, by the name of the field."""
_SCORES: dict[str, Any] = dict.fromkeys(VALIDATION_CURVES, (Drawn | None, None))
LOG_LINE = create_model("LogLine", __base__=LogLine, **_SCORES)
"""A line with a field for each metric of the validation."""


def read_log(run: Path, fields: Iterable[str]) -> tuple[list[LogLine], list[str]]:
    """Return the lines of a run's log, and the errors of unreadable lines. Ignores an incomplete line at the end.

    Raises UserError if the log cannot be read, or if no line has a number in one of these fields.
    """
    path = run / "log.jsonl"
    try:
        complete = read_regular(path).split(b"\n")[:-1]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give the directory of a run, which `train` writes") from None
    records, faults = list[LogLine](), list[str]()
    for number, line in enumerate(complete, start=1):
        try:
            records.append(LOG_LINE.model_validate_json(line))
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            field = "".join(f"{key}: " for key in fault["loc"])
            faults.append(f"{path}, line {number}: {field}{fault['msg']}")
    if not faults and not any(getattr(record, field) is not None for record in records for field in fields):
        raise UserError(f"{path} has no update yet; wait until training.log_every updates are done")
    return records, faults


def lines_of(records: Sequence[LogLine], fields: Iterable[str]) -> dict[str, Line]:
    """Return a line over the updates for each of these fields that is in the log."""
    found: dict[str, Line] = {}
    for field in fields:
        if there := [record for record in records if field in record.model_fields_set]:
            found[field] = [record.step for record in there], [getattr(record, field) for record in there]
    return found
