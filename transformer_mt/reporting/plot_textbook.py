"""Draws position encodings and masks: `plot positions` and `plot masks`.

T positions  D model width
"""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from transformer_mt.base.errors import UserError
from transformer_mt.base.languages import PAD, UNK
from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.models.embeddings import sinusoidal
from transformer_mt.models.layouts import Sentences, whole_mask
from transformer_mt.reporting.picture_file import Command, Picture, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POSITIONS = 4096  # the dot products of all pairs then take 67 MB


def _add_positions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--positions", metavar="T", type=int, default=100, help="number of positions (default: 100)")
    parser.add_argument("--width", metavar="D", type=int, default=128, help="number of dimensions (default: 128)")


def _positions(arguments: argparse.Namespace) -> Picture:
    length, width = arguments.positions, arguments.width
    if not 1 <= length <= MOST_POSITIONS or not 2 <= width <= MOST_POSITIONS or width % 2:
        raise UserError(
            f"--positions must be from 1 to {MOST_POSITIONS}, and --width an even number from 2 to {MOST_POSITIONS}: "
            "a picture of more would be unreadable"
        )
    table_TD = sinusoidal(length, width).numpy()
    return Picture(lambda: positions_figure(table_TD), f"{length} positions of {width} dimensions")


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


POSITIONS = Command(
    "Draws the sinusoids of Vaswani et al. 2017: an image of positions and dimensions, four dimensions as curves, and\n"
    "the dot products of all pairs of positions.",
    "positions --output positions.png",
    _add_positions,
    _positions,
)


def _add_masks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--length", metavar="T", type=int, default=8, help="number of positions (default: 8)")
    parser.add_argument("--padding", metavar="N", type=int, default=2, help="how many are padding (default: 2)")
    parser.add_argument("--window", metavar="R", type=int, default=2, help="window of the last two masks (default: 2)")


def _masks(arguments: argparse.Namespace) -> Picture:
    """Return the masks TT of attention that the Transformer makes for a sentence."""
    if not 0 <= arguments.padding < arguments.length <= 100 or arguments.window < 1:
        raise UserError("--length must be from 1 to 100, --padding less than --length, and --window at least 1")
    length, padding, window = arguments.length, arguments.padding, arguments.window
    sentence = Sentences(torch.tensor([[UNK] * (length - padding) + [PAD] * padding]))
    masks = {
        "encoder and cross-attention": sentence.everywhere(),
        "decoder": sentence.backwards(),
        f"encoder, window {window}": sentence.everywhere(window),
        f"decoder, window {window}": sentence.backwards(window),
    }
    drawn = {name: whole_mask(see).expand(1, 1, length, length)[0, 0] for name, see in masks.items()}
    return Picture(lambda: masks_figure(drawn), "; ".join(drawn))


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


MASKS = Command(
    "Draws which positions may attend to which, for a sentence with padding at its end: the padding mask (of the\n"
    "encoder and of cross-attention), the causal mask of the decoder's self-attention, and the masks of both\n"
    "self-attentions with a window (model.attention_window).",
    "masks --output masks.png",
    _add_masks,
    _masks,
)
