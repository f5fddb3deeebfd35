"""Draws attention weights as heat maps: a cell for each two pieces.

M maps  T rows  S columns
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.pictures import fonts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# In inches. A cell is as large as a line of text, unless maps would become larger than about a page.
_CELL, _LONGEST_SIDE = 0.24, 16.0


@dataclass(frozen=True)
class Side:
    """The labels of the rows or the columns of a map."""

    name: str
    pieces: list[str]


def figure_of(maps_MTS: FloatArray, titles: Sequence[str], across: int, rows: Side, columns: Side) -> "Figure":
    """The maps in a grid of so many columns, and a bar that shows what the colours mean.

    White is 0, and the darkest blue is 1.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    M, T, S = maps_MTS.shape
    down = -(-M // across)
    cell = min(_CELL, _LONGEST_SIDE / max(across * S, down * T))
    points = min(10.0, 0.6 * cell * 72)  # an inch has 72
    labels = [fonts.shown(side.pieces) for side in (rows, columns)]
    # A letter is at most about 0.4 cells wide; the rest of the room is for names and gaps.
    room = [0.7 + 0.4 * cell * max(map(len, texts)) for texts in labels]
    size = (across * (cell * S + room[0]) + 1.0, down * (cell * T + room[1]))
    around = 0.12 if M > 1 else None  # inches around each map; None is matplotlib's own
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=around, w_pad=around))
    grid = figure.subplots(down, across, squeeze=False).flatten().tolist()
    for map_TS, title, axes in zip(maps_MTS, titles, grid, strict=False):
        image = axes.imshow(map_TS, cmap="Blues", vmin=0.0, vmax=1.0)
        # parse_math=False, since a piece may be a dollar sign.
        axes.set_yticks(range(T), labels[0], parse_math=False, fontsize=points)
        axes.set_xticks(range(S), labels[1], parse_math=False, fontsize=points, rotation=90)
        axes.tick_params(length=0)
        axes.set(ylabel=rows.name, xlabel=columns.name, title=title)
    for axes in grid[M:]:
        axes.remove()
    figure.colorbar(image, ax=grid[:M], shrink=0.5, aspect=15, ticks=[0, 1])
    return figure
