"""Draws pictures known from textbooks: positions, masks, learning rate schedules, and training curves.

T positions  D model width
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.reporting.picture_file import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
Line = tuple[Sequence[float], Sequence[float | None]]
"""The x and the y values. None is a gap."""


def of_positions(table_TD: FloatArray, title: str) -> "Figure":
    """Draw the encodings as an image, four of their dimensions as curves, and the dot products of all positions."""
    length, width = table_TD.shape
    figure = new_figure(13, 4)
    image, curves, products = figure.subplots(1, 3)
    largest = np.abs(table_TD).max()
    shown = image.imshow(table_TD, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
    image.set(xlabel="dimension", ylabel="position", title=title)
    figure.colorbar(shown, ax=image)
    for dimension in sorted({min(width - 1, width * part // 16) for part in (1, 2, 4, 6)}):
        curves.plot(range(length), table_TD[:, dimension], label=f"dimension {dimension}")
    curves.set(xlabel="position", title="four dimensions")
    curves.legend(fontsize="small", loc="upper right")
    shown = products.imshow(table_TD @ table_TD.T, cmap="viridis")
    products.set(xlabel="position", ylabel="position", title="dot products of two positions")
    figure.colorbar(shown, ax=products)
    return figure


def of_masks(masks: Mapping[str, Tensor]) -> "Figure":
    """Draw each mask TT: a cell is dark if the row's position may attend to the column's."""
    figure = new_figure(2.6 * len(masks), 3)
    for axes, (name, mask_TT) in zip(figure.subplots(1, len(masks), squeeze=False)[0], masks.items(), strict=True):
        axes.imshow(mask_TT.float().numpy(), cmap="Blues", vmin=0.0, vmax=1.0)
        axes.set_xticks(range(mask_TT.shape[1]))
        axes.set_yticks(range(mask_TT.shape[0]))
        axes.tick_params(length=0, labelsize=7)
        axes.set(xlabel="sees position", ylabel="position", title=name)
    return figure


def of_lines(panels: Mapping[str, Mapping[str, Line]]) -> "Figure":
    """Draw a panel for each quantity, with lines over the updates. The legend is in the first panel, which has all.

    The panels are in rows, and the figure has the proportions of a slide (16:9).
    """
    columns = math.ceil(math.sqrt(len(panels)))
    width = 4.5 * max(columns, 2)
    figure = new_figure(width, width * 9 / 16)
    for number, (name, lines) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(math.ceil(len(panels) / columns), columns, number)
        for label, line in lines.items():
            draw_line(axes, line, label=label)
        axes.set(xlabel="update")
        axes.set_title(name.replace(" (", "\n("), fontsize="medium")
        axes.grid(alpha=0.3)
    # parse_math=False, because a name may contain a dollar sign.
    for text in figure.axes[0].legend(fontsize="small").get_texts():
        text.set_parse_math(False)
    return figure


def draw_line(axes: "Axes", line: Line, **look: Any) -> None:
    """Draw a line with its gaps; `look` are arguments of matplotlib's `plot`.

    Points have a marker if there are few of them, and if they have no neighbour, because a line would not show them.
    """
    values_N = np.array(line[1], dtype=float)
    there_N = np.isfinite(values_N)
    alone_N = there_N & ~np.append(there_N[1:], False) & ~np.append(False, there_N[:-1])
    axes.plot(line[0], values_N, marker="o", markersize=4, markevery=alone_N | (len(values_N) < 20), **look)
