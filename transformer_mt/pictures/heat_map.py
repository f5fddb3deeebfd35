"""Draws attention weights as heat maps: a cell for each two pieces.

M maps  T rows  S columns
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.pictures.fonts import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In inches. A cell is as large as a line of text, unless maps would become larger than about a page.
_CELL, _LONGEST_SIDE = 0.24, 16.0


@dataclass(frozen=True)
class Side:
    """The labels of the rows or the columns of a map."""

    name: str
    pieces: list[str]


def heat_maps_of(maps_MTS: FloatArray, titles: Sequence[str], across: int, rows: Side, columns: Side) -> "Figure":
    """The maps in a grid of so many columns, and a bar that shows what the colours mean.

    White is 0, and the darkest blue is 1.
    """
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
    """A figure for maps with cells of that size, in inches, and their labels."""
    from matplotlib.figure import Figure

    # A letter is at most about 0.4 cells wide; the rest of the room is for names and gaps.
    left, below = (0.7 + 0.4 * cell * max(map(len, side.pieces)) for side in (rows, columns))
    size = across * (cell * len(columns.pieces) + left) + 1.0, down * (cell * len(rows.pieces) + below)
    return Figure(figsize=size, layout="constrained")


def name_cells(axes: "Axes", rows: Side, columns: Side, cell: float) -> None:
    """Write the pieces beside the rows and below the columns of a map whose cells have that size, in inches."""
    points = min(10.0, 0.6 * cell * 72)  # an inch has 72
    # parse_math=False, since a piece may be a dollar sign.
    axes.set_yticks(range(len(rows.pieces)), rows.pieces, parse_math=False, fontsize=points)
    axes.set_xticks(range(len(columns.pieces)), columns.pieces, parse_math=False, fontsize=points, rotation=90)
    axes.tick_params(length=0)
    axes.set(ylabel=rows.name, xlabel=columns.name)
