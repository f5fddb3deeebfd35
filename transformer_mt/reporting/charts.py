"""Where the lines, bars and cells of the page's pictures are, in the units of their SVG. The template writes them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from numpy.typing import NDArray

from transformer_mt.reporting.gathered import Curve

# Units of the picture, of which about one is a pixel, on a telephone as on a large screen.
LEFT, RIGHT, TOP, BOTTOM = 56, 388, 10, 196
LEVELS = 8  # shades on each side of 0 in a map of numbers
_BAR, _BETWEEN = 13, 26


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    place: float
    text: str


@dataclass(frozen=True)
class DrawnLine:
    """The line of a run. Its number, from 0, chooses the colour."""

    name: str
    number: int
    path: str
    dots: list[tuple[float, float]]
    """Points without a neighbour, which a line does not show."""
    said: str
    """First and last value, for those who do not see the picture."""


@dataclass(frozen=True)
class LineChart:
    """Lines in the same axes."""

    key: str
    title: str
    across: str
    lines: list[DrawnLine]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    marks: list[tuple[float, int]]
    """Where a run went on after it was stopped: the place, and the number of the run."""
    numbers: dict[str, Any]
    """What the script needs to read values: the axis and the points."""


@dataclass(frozen=True)
class Bar:
    """One run in one group of a bar chart."""

    name: str
    number: int
    top: float
    length: float
    text: str


@dataclass(frozen=True)
class BarChart:
    """Bars from left to right, in groups."""

    title: str
    groups: list[tuple[str, float, list[Bar]]]
    """The name of each, where it is written, and its bars."""
    height: float


def lines(
    key: str,
    title: str,
    curves: Mapping[str, tuple[int, Curve]],
    across: str = "update",
    marks: Sequence[tuple[int, int]] = (),
) -> LineChart:
    """Draw curves, each with its name and the number of its colour. There is at least one finite value.

    `marks` are pairs of a step and the number of a run.
    """
    steps = [step for _, curve in curves.values() for step in curve.steps]
    values = [value for _, curve in curves.values() for value in curve.values if value is not None]
    x_low, x_high = min(steps), max(steps)
    x_high += x_high == x_low
    y_ticks = nice(min(values), max(values))
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def x(step: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * (step - x_low) / (x_high - x_low), 1)

    def y(value: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (value - y_low) / (y_high - y_low), 1)

    drawn = []
    for name, (number, curve) in curves.items():
        points = zip(curve.steps, curve.values, strict=True)
        path, dots = _path([(x(step), None if value is None else y(value)) for step, value in points])
        drawn.append(DrawnLine(name, number, path, dots, _said(curve, across)))
    series = [{"name": name, "steps": curve.steps, "values": curve.values} for name, (_, curve) in curves.items()]
    return LineChart(
        key,
        title,
        across,
        drawn,
        [Tick(x(tick), short(tick)) for tick in nice(x_low, x_high) if x_low <= tick <= x_high],
        [Tick(y(tick), short(tick)) for tick in y_ticks],
        [(x(step), number) for step, number in marks if x_low <= step <= x_high],
        {"across": across, "low": x_low, "high": x_high, "left": LEFT, "right": RIGHT, "series": series},
    )


def nice(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers at equal distances, the first at most `low` and the last at least `high`."""
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (size, 2 * size, 5 * size, 10 * size, 20 * size):
        first, last = math.floor(low / step), math.ceil(high / step)
        if last - first <= most:
            break
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def short(number: float) -> str:
    """A number as axes have it: 20,000 is 20k, and 1,500,000 is 1.5M."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            return f"{number / (1e3 if sign == 'k' else size):g}{sign}"
    return f"{number:g}"


def shown(number: float) -> str:
    """A number as text has it."""
    if number and (abs(number) < 0.001 or abs(number) >= 1e9):
        return f"{number:.3g}"
    return f"{number:,.0f}" if number == int(number) else f"{number:,.4g}" if abs(number) < 1000 else f"{number:,.1f}"


def _path(points: Sequence[tuple[float, float | None]]) -> tuple[str, list[tuple[float, float]]]:
    """Lines through neighbouring points; a value that is missing leaves a gap."""
    parts, dots = list[str](), list[tuple[float, float]]()
    for is_there, group in groupby(points, key=lambda point: point[1] is not None):
        whole = [(x, y) for x, y in group if y is not None]
        if is_there and len(whole) == 1:
            dots += whole
        elif is_there:
            parts.append("M" + "L".join(f"{x:g} {y:g}" for x, y in whole))
    return "".join(parts), dots


def _said(curve: Curve, across: str) -> str:
    there = [(s, v) for s, v in zip(curve.steps, curve.values, strict=True) if v is not None]
    if not there:
        return "no finite value"
    (first, before), (last, after) = there[0], there[-1]
    return f"{shown(before)} at {across} {first:,}, {shown(after)} at {across} {last:,}"


def bars(title: str, groups: Sequence[tuple[str, Sequence[tuple[str, int, float]]]]) -> BarChart:
    """Draw values from 0: for each group, its name, and for each run its name, number and value."""
    most = nice(0, max((value for _, runs in groups for _, _, value in runs), default=0) or 1)[-1]
    found, top = [], 0.0
    for name, runs in groups:
        label, top = top + 14, top + 20
        drawn = []
        for run, number, value in runs:
            drawn.append(Bar(run, number, top, round(330 * max(value, 0) / most, 1), f"{value:.1f}"))
            top += _BAR + 3
        found.append((name, label, drawn))
        top += _BETWEEN - 20
    return BarChart(title, found, top)


@dataclass(frozen=True)
class Map:
    """Cells in shades: the paths of each shade, from the most negative to the most positive."""

    columns: int
    rows: int
    paths: list[tuple[int, str]]


def map_of(numbers_RC: NDArray[Any]) -> Map:
    """Draw a table of numbers as a map, whose darkest shades are its largest numbers, positive or negative.

    Neighbouring cells of the same shade are one rectangle, and all of a shade are one path, which makes it small.
    """
    rows, columns = numbers_RC.shape
    largest = float(abs(numbers_RC).max()) or 1.0
    paths: dict[int, list[str]] = {}
    for row, levels in enumerate((numbers_RC / largest * LEVELS).round().astype(int).tolist()):
        column = 0
        for level, group in groupby(levels):
            size = len(list(group))
            if level:
                paths.setdefault(level, []).append(f"M{column} {row}h{size}v1h-{size}z")
            column += size
    return Map(columns, rows, [(level, "".join(paths[level])) for level in sorted(paths)])
