"""Draws what a word looks at: the sentence twice, and lines from the word to the others.

H heads  M words that are looked at
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.pictures.fonts import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In inches.
_LINE, _HIGHEST, _BETWEEN = 0.28, 16.0, 2.4
_LETTER = 0.6 / 72  # for each point of the size of letters
_WIDEST = 7.0  # points: the line of a weight of 1
_FAINTEST = 0.15  # how dark a line is whose weight is near 0, so that many small weights are seen


def arcs_of(
    weights_HM: FloatArray, names: Sequence[str], title: str, words: Sequence[str], word: int, seen: Sequence[str]
) -> "Figure":
    """Lines from words[word], on the left, to the words on the right: wider and darker for a larger weight.

    Each row of the weights has a colour and a name; the names are shown if there are several. A weight of 1 looks the
    same in every picture.
    """
    from matplotlib.figure import Figure

    left, right = shown(words), shown(seen)
    longest = max(len(left), len(right))
    line = min(_LINE, _HIGHEST / longest)
    points = min(11.0, 0.55 * line * 72)  # an inch has 72
    letters = max(map(len, left)) + max(map(len, right))
    figure = Figure(figsize=(_BETWEEN + _LETTER * points * letters, line * longest + 0.5), layout="constrained")
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
        side.set_yticks(range(len(texts)), texts, parse_math=False)  # since a word may be a dollar sign
    for number, label in enumerate(axes.get_yticklabels()):
        label.set(fontweight="bold" if number == word else "normal", color="black" if number == word else "0.6")
    _draw_lines(axes, weights_HM, word, names)
    return figure


def _draw_lines(axes: "Axes", weights_HM: FloatArray, word: int, names: Sequence[str]) -> None:
    """Draw the lines of each row in its colour. Those of several rows end side by side, and their colours are named."""
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
