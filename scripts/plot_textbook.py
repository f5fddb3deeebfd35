"""Draws the position encodings and the masks of the documentation.

    python scripts/plot_textbook.py positions positions.png
    python scripts/plot_textbook.py masks masks.png

`positions` shows the sinusoids of Vaswani et al. 2017: an image of positions and dimensions, four dimensions as curves,
and the dot products of all pairs of positions. `masks` shows which positions may attend to which, for a sentence with
padding at its end: the padding mask (of the encoder and of cross-attention), the causal mask of the decoder's
self-attention, and the masks of both self-attentions with a window (model.attention_window).

T positions  D model width
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from transformer_mt.base.languages import PAD, UNK
from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.models.embeddings import sinusoidal
from transformer_mt.models.layouts import Sentences, whole_mask
from transformer_mt.reporting.picture_file import new_figure, write
from transformer_mt.terminal import cli

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def main(argv: Sequence[str] | None = None) -> int:
    """Write a picture and return 0. Raises UserError, as `check` of reporting/picture_file.py does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", choices=["positions", "masks"])
    parser.add_argument("output", metavar="FILE", type=Path, help="a .png, .svg or .pdf")
    arguments = parser.parse_args(argv)
    drawn = {
        "positions": partial(positions_figure, sinusoidal(100, 128).numpy()),
        "masks": partial(masks_figure, masks()),
    }
    write(arguments.output, drawn[arguments.picture])
    return 0


def positions_figure(table_TD: FloatArray) -> "Figure":
    """Draw the encodings as an image, four of their dimensions as curves, and the dot products of all positions."""
    length, width = table_TD.shape
    figure = new_figure(13, 4)
    image, curves, products = figure.subplots(1, 3)
    largest = np.abs(table_TD).max()
    shown = image.imshow(table_TD, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
    image.set(xlabel="dimension", ylabel="position", title="sines and cosines in turn")
    figure.colorbar(shown, ax=image)
    for dimension in sorted({min(width - 1, width * part // 16) for part in (1, 2, 4, 6)}):
        curves.plot(range(length), table_TD[:, dimension], label=f"dimension {dimension}")
    curves.set(xlabel="position", title="four dimensions")
    curves.legend(fontsize="small", loc="upper right")
    shown = products.imshow(table_TD @ table_TD.T, cmap="viridis")
    products.set(xlabel="position", ylabel="position", title="dot products of two positions")
    figure.colorbar(shown, ax=products)
    return figure


def masks(length: int = 8, padding: int = 2, window: int = 2) -> dict[str, Tensor]:
    """Return the masks TT of attention that the Transformer makes for a sentence."""
    sentence = Sentences(torch.tensor([[UNK] * (length - padding) + [PAD] * padding]))
    layouts = {
        "encoder and cross-attention": sentence.everywhere(),
        "decoder": sentence.backwards(),
        f"encoder, window {window}": sentence.everywhere(window),
        f"decoder, window {window}": sentence.backwards(window),
    }
    return {name: whole_mask(see).expand(1, 1, length, length)[0, 0] for name, see in layouts.items()}


def masks_figure(masks: Mapping[str, Tensor]) -> "Figure":
    """Draw each mask TT: a cell is dark if the row's position may attend to the column's."""
    figure = new_figure(2.6 * len(masks), 3)
    for axes, (name, mask_TT) in zip(figure.subplots(1, len(masks), squeeze=False)[0], masks.items(), strict=True):
        axes.imshow(mask_TT.float().numpy(), cmap="Blues", vmin=0.0, vmax=1.0)
        axes.set_xticks(range(mask_TT.shape[1]))
        axes.set_yticks(range(mask_TT.shape[0]))
        axes.tick_params(length=0, labelsize=7)
        axes.set(xlabel="sees position", ylabel="position", title=name)
    return figure


if __name__ == "__main__":
    sys.exit(cli.run(main))
