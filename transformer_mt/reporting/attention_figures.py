"""Draws attention weights: as heat maps, and as lines from a word to the words that it attends to.

M maps, or attended words  H heads  T rows  S columns
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.reporting.picture_file import new_figure, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
# In inches. A cell is as high as a line of text, or smaller if the maps would otherwise be larger than a page.
_CELL, _LONGEST_SIDE = 0.24, 16.0


@dataclass(frozen=True)
class Side:
    """The labels of the rows or the columns of a map."""

    name: str
    pieces: list[str]


def heat_maps_of(maps_MTS: FloatArray, titles: Sequence[str], across: int, rows: Side, columns: Side) -> "Figure":
    """Draw the maps in a grid with `across` columns, from white for 0 to the darkest blue for 1."""
    M, T, S = maps_MTS.shape
    rows, columns = (Side(side.name, shown(side.pieces)) for side in (rows, columns))
    down = -(-M // across)
    cell = min(_CELL, _LONGEST_SIDE / max(across * S, down * T))
    figure = room_for(rows, columns, cell, across, down)
    grid = figure.subplots(down, across, squeeze=False).flatten().tolist()
    for map_TS, title, axes in zip(maps_MTS, titles, grid, strict=False):
        image = axes.imshow(map_TS, cmap="Blues", vmin=0.0, vmax=1.0)
        name_cells(axes, rows, columns, cell)
        axes.set_title(title)
    for axes in grid[M:]:
        axes.remove()
    figure.colorbar(image, ax=grid[:M], shrink=0.5, aspect=15, ticks=[0, 1])
    return figure


def room_for(rows: Side, columns: Side, cell: float, across: int = 1, down: int = 1) -> "Figure":
    """Return a figure large enough for maps with cells of that size (in inches) and their labels."""
    # A letter is at most about 0.4 cells wide; the constants are for names and gaps.
    left, below = (0.7 + 0.4 * cell * max(map(len, side.pieces)) for side in (rows, columns))
    size = across * (cell * len(columns.pieces) + left) + 1.0, down * (cell * len(rows.pieces) + below)
    return new_figure(*size)


def name_cells(axes: "Axes", rows: Side, columns: Side, cell: float) -> None:
    """Write the pieces beside the rows and below the columns of a map; `cell` is the size of a cell in inches."""
    points = min(10.0, 0.6 * cell * 72)  # an inch has 72 points
    # parse_math=False, because a piece may be a dollar sign.
    axes.set_yticks(range(len(rows.pieces)), rows.pieces, parse_math=False, fontsize=points)
    axes.set_xticks(range(len(columns.pieces)), columns.pieces, parse_math=False, fontsize=points, rotation=90)
    axes.tick_params(length=0)
    axes.set(ylabel=rows.name, xlabel=columns.name)


# In inches.
_LINE, _HIGHEST, _BETWEEN = 0.28, 16.0, 2.4
_LETTER = 0.6 / 72  # width of a letter, for each point of the font size
_WIDEST = 7.0  # width of the line for a weight of 1, in points
_FAINTEST = 0.15  # opacity of the line for a weight near 0, so that many small weights are visible


def arcs_of(
    weights_HM: FloatArray, names: Sequence[str], title: str, words: Sequence[str], word: int, seen: Sequence[str]
) -> "Figure":
    """Draw lines from words[word], on the left, to the words on the right: wider and darker for a larger weight.

    Each row of the weights has a colour; a legend names several. A weight of 1 looks the same in every picture.
    """
    left, right = shown(words), shown(seen)
    longest = max(len(left), len(right))
    line = min(_LINE, _HIGHEST / longest)
    points = min(11.0, 0.55 * line * 72)  # an inch has 72 points
    letters = max(map(len, left)) + max(map(len, right))
    figure = new_figure(_BETWEEN + _LETTER * points * letters, line * longest + 0.5)
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(longest - 0.5, -0.5), xticks=[])
    axes.set_title(title, fontsize="medium")
    for spine in axes.spines.values():
        spine.set_visible(False)
    others = axes.twinx()
    others.set_ylim(axes.get_ylim())
    for side, texts in ((axes, left), (others, right)):
        side.set_frame_on(False)
        side.tick_params(length=0, labelsize=points)
        side.set_yticks(range(len(texts)), texts, parse_math=False)  # because a word may be a dollar sign
    for number, label in enumerate(axes.get_yticklabels()):
        label.set(fontweight="bold" if number == word else "normal", color="black" if number == word else "0.6")
    _draw_lines(axes, weights_HM, word, names)
    return figure


def _draw_lines(axes: "Axes", weights_HM: FloatArray, word: int, names: Sequence[str]) -> None:
    """Draw the lines of each row in its colour. Lines of several rows end side by side, and a legend names them."""
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    H = len(weights_HM)
    several = colormaps["tab10" if H <= 10 else "tab20"]
    colours = [several(h % 20) for h in range(H)] if H > 1 else [colormaps["Blues"](0.9)]
    for h, other in np.argwhere(weights_HM > 0).tolist():
        aside = 0.6 * ((h + 0.5) / H - 0.5)
        weight = float(weights_HM[h, other])
        ends, strength = [word, other + aside], min(1.0, _FAINTEST + (1.0 - _FAINTEST) * weight)
        width = _WIDEST * weight
        axes.plot([0.03, 0.97], ends, color=colours[h], alpha=strength, linewidth=width, solid_capstyle="butt")
    if H > 1:
        lines = [Line2D([], [], color=colour, linewidth=3) for colour in colours]
        axes.legend(lines, names, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=min(H, 4), frameon=False)
