"""Draws the page's pictures with matplotlib, as SVG with real text, and with the colours of the page."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from transformer_mt.reporting.picture_file import UNDATED, new_figure, own_style
from transformer_mt.reporting.plot_textbook import Line, draw_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The same colours and dashes as in style.css.
_COLOURS = ("#0b66c2", "#b34700", "#1c7c3c", "#8a2fa8", "#b3123f", "#4f5d00", "#006f7d", "#5a4a42")
_SOFT, _FAINT = "#56616e", "#d5dbe1"
NUM_COLOURS, _DASHES = len(_COLOURS), ("-", "--", ":")
_WIDTH = 4.4  # inches: fits into a column of the page or on a telephone without making the letters small
_STYLE: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 10.0, "text.color": _SOFT, "axes.labelcolor": _SOFT} | {
    f"{axis}tick.{part}": colour for axis in "xy" for part, colour in (("color", _FAINT), ("labelcolor", _SOFT))
}


@dataclass
class Chart:
    """A picture of the page."""

    key: str
    """A unique name in the page."""
    title: str
    descriptions: Sequence[tuple[str, int, str]] = ()
    """For readers who cannot see it: for each run its name, the number of its colour, and a description."""
    svg: Markup = field(default_factory=Markup)


def lines(key: str, title: str, curves: Mapping[str, tuple[int, Line]], marks: Sequence[tuple[int, int]] = ()) -> Chart:
    """Draw curves over the updates. `curves` has the number of the colour and the line for each name.

    `marks` are pairs: the update from which a run resumed, and the number of the run.
    """
    chart = Chart(key, title, [(name, number, _ends(line)) for name, (number, line) in curves.items()])
    with _drawn(chart, _WIDTH, 2.5) as figure:
        axes = _plain_axes(figure)
        for number, line in curves.values():
            draw_line(axes, line, color=_COLOURS[number % NUM_COLOURS], linestyle=_DASHES[number % len(_DASHES)])
        for step, number in marks:
            axes.axvline(step, color=_COLOURS[number % NUM_COLOURS], linewidth=1.0, linestyle=(0, (2, 4)))
        axes.set_xlabel("update", loc="right")
        axes.grid(axis="y", color=_FAINT)
    return chart


def _plain_axes(figure: "Figure") -> "Axes":
    axes = figure.subplots()
    for spine in axes.spines.values():
        spine.set_color(_FAINT)
    axes.locator_params(nbins=6)
    return axes


def _ends(line: Line) -> str:
    there = [(step, value) for step, value in zip(*line, strict=True) if value is not None]
    if not there:
        return "no finite value"
    return ", ".join(f"{_short(value)} at update {step:,}" for step, value in (there[0], there[-1]))


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


@contextmanager
def _drawn(chart: Chart, width: float, height: float) -> Iterator["Figure"]:
    """Give a figure of this size, in inches, to draw on; then store it as the chart's SVG."""
    import matplotlib

    with own_style(salt=chart.key):
        matplotlib.rcParams.update(_STYLE)
        figure = new_figure(width, height)
        yield figure
        content = io.StringIO()
        figure.savefig(content, format="svg", transparent=True, metadata=dict.fromkeys(UNDATED["svg"]))
    label = ". ".join([chart.title, *(f"{name}: {text}" for name, _, text in chart.descriptions)])
    svg = content.getvalue().partition("<svg ")[2]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<[^>]*) id="[\w.]+_[0-9]+"', r"\1", svg)  # in tags: other pictures use these ids, too
    chart.svg = Markup('<svg role="img" aria-label="{}" ').format(label) + Markup(svg)
