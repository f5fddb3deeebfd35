"""Reads log.jsonl, and draws its curves with matplotlib, as SVG with real text and the colours of the page."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from pydantic import ValidationError

from transformer_mt.base.errors import UserError
from transformer_mt.reporting.picture_file import UNDATED, new_figure, own_style
from transformer_mt.settings.training_settings import VALIDATION_METRICS
from transformer_mt.storage.files import read_regular
from transformer_mt.storage.records import Count, Drawn, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    valid_nll: Drawn | None = None
    valid_bleu: Drawn | None = None
    valid_chrf: Drawn | None = None
    valid_perplexity: float | None = None
    valid_seconds: Drawn | None = None
    best: bool = False


CURVES = {
    "loss": "loss in training, with label smoothing (nats per target token)",
    "nll": "negative log-likelihood in training (nats per target token)",
    **{f"valid_{metric}": shown.title for metric, shown in VALIDATION_METRICS.items()},
    "learning_rate": "learning rate",
    "tokens_per_second": "target tokens per second",
    "gradient_norm": "norm of the gradient, before clipping",
    "skipped": "updates that were skipped so far",
    "split": "micro-batches that were split so far",
}
"""The curves that are drawn from the log, by the name of the field."""


def read_log(run: Path) -> tuple[list[LogLine], list[str]]:
    """Return the lines of a run's log, and the errors of unreadable lines. Ignores an incomplete line at the end.

    Raises UserError if the log cannot be read, or if no line has a number for one of CURVES.
    """
    path = run / "log.jsonl"
    try:
        complete = read_regular(path).split(b"\n")[:-1]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give the directory of a run, which `train` writes") from None
    records, faults = list[LogLine](), list[str]()
    for number, line in enumerate(complete, start=1):
        try:
            records.append(LogLine.model_validate_json(line))
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            field = "".join(f"{key}: " for key in fault["loc"])
            faults.append(f"{path}, line {number}: {field}{fault['msg']}")
    if not faults and not any(getattr(record, field) is not None for record in records for field in CURVES):
        raise UserError(f"{path} has no update yet; wait until training.log_every updates are done")
    return records, faults


def lines_of(records: Sequence[LogLine]) -> dict[str, Line]:
    """Return a line over the updates for each of CURVES that is in the log."""
    found: dict[str, Line] = {}
    for key in CURVES:
        if there := [record for record in records if key in record.model_fields_set]:
            found[key] = [record.step for record in there], [getattr(record, key) for record in there]
    return found


# The same colours and dashes as in style.css.
_COLOURS = ("#0b66c2", "#b34700", "#1c7c3c", "#8a2fa8", "#b3123f", "#4f5d00", "#006f7d", "#5a4a42")
_SOFT, _FAINT = "#56616e", "#d5dbe1"
NUM_COLOURS, _DASHES = len(_COLOURS), ("-", "--", ":")
_STYLE: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 10.0, "text.color": _SOFT, "axes.labelcolor": _SOFT} | {
    f"{axis}tick.{part}": colour for axis in "xy" for part, colour in (("color", _FAINT), ("labelcolor", _SOFT))
}


@dataclass(frozen=True)
class Chart:
    title: str
    descriptions: Sequence[tuple[str, int, str]]
    """For readers who cannot see it: for each run its name, the number of its colour, and a description."""
    svg: Markup


def lines(key: str, title: str, curves: Mapping[str, tuple[int, Line]], marks: Sequence[tuple[int, int]] = ()) -> Chart:
    """Draw curves over the updates. `curves` has the number of the colour and the line for each name.

    `key` is a unique name in the page. `marks` are pairs: the update from which a run resumed, and its number.
    """
    import matplotlib

    content = io.StringIO()
    with own_style(salt=key):
        matplotlib.rcParams.update(_STYLE)
        figure = new_figure(4.4, 2.5)  # fits into a column or on a telephone without making the letters small
        axes = figure.subplots()
        for spine in axes.spines.values():
            spine.set_color(_FAINT)
        axes.locator_params(nbins=6)
        for number, line in curves.values():
            draw_line(axes, line, color=_COLOURS[number % NUM_COLOURS], linestyle=_DASHES[number % len(_DASHES)])
        for step, number in marks:
            axes.axvline(step, color=_COLOURS[number % NUM_COLOURS], linewidth=1.0, linestyle=(0, (2, 4)))
        axes.set_xlabel("update", loc="right")
        axes.grid(axis="y", color=_FAINT)
        figure.savefig(content, format="svg", transparent=True, metadata=dict.fromkeys(UNDATED["svg"]))
    descriptions = [(name, number, _ends(line)) for name, (number, line) in curves.items()]
    label = ". ".join([title, *(f"{name}: {text}" for name, _, text in descriptions)])
    svg = content.getvalue().partition("<svg ")[2]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<[^>]*) id="[\w.]+_[0-9]+"', r"\1", svg)  # in tags: other pictures use these ids, too
    return Chart(title, descriptions, Markup('<svg role="img" aria-label="{}" ').format(label) + Markup(svg))


def draw_line(axes: "Axes", line: Line, **look: Any) -> None:
    """Draw a line with its gaps; `look` are arguments of matplotlib's `plot`.

    Points have a marker if there are few of them, and if they have no neighbour, because a line would not show them.
    """
    values_N = np.array(line[1], dtype=float)
    there_N = np.isfinite(values_N)
    alone_N = there_N & ~np.append(there_N[1:], False) & ~np.append(False, there_N[:-1])
    axes.plot(line[0], values_N, marker="o", markersize=4, markevery=alone_N | (len(values_N) < 20), **look)


def _ends(line: Line) -> str:
    there = [(step, value) for step, value in zip(*line, strict=True) if value is not None]
    if not there:
        return "no finite value"
    return ", ".join(f"{_short(value)} at update {step:,}" for step, value in (there[0], there[-1]))


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"
