"""`plot positions` and `plot masks`: draw position encodings and attention masks."""

import argparse
from pathlib import Path

import numpy as np
import torch

from transformer_mt.base.errors import UserError
from transformer_mt.base.languages import PAD, UNK
from transformer_mt.decoding.loading import check_files
from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.models.embeddings import sinusoidal
from transformer_mt.models.layouts import Sentences, whole_mask
from transformer_mt.reporting import figures
from transformer_mt.reporting.picture_command import Command, Picture
from transformer_mt.storage.checksums import MODEL
from transformer_mt.storage.weights import read_tensors

MOST_POSITIONS = 4096  # the dot products of all pairs then take 67 MB


def _add_positions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL_DIR", type=Path, nargs="?", help="draw this model's learned positions")
    parser.add_argument("--positions", metavar="T", type=int, default=100, help="number of positions (default: 100)")
    parser.add_argument("--width", metavar="D", type=int, help="number of dimensions of sinusoids (default: 128)")
    parser.add_argument("--halves", action="store_true", help="put all sines before all cosines")


def _positions(arguments: argparse.Namespace) -> Picture:
    if arguments.model is not None and (arguments.width or arguments.halves):
        raise UserError("--width and --halves are only for sinusoids: leave them out, or leave out MODEL_DIR")
    width = 128 if arguments.width is None else arguments.width
    if not 1 <= arguments.positions <= MOST_POSITIONS or not 2 <= width <= MOST_POSITIONS or width % 2:
        raise UserError(
            f"--positions must be from 1 to {MOST_POSITIONS}, and --width an even number from 2 to {MOST_POSITIONS}: "
            "a picture of more would be unreadable"
        )
    if arguments.model is not None:
        table_TD, title = learned_positions(arguments.model)[: arguments.positions], "learned"
    else:
        table_TD, title = sinusoidal(arguments.positions, width).numpy(), "sines and cosines in turn"
        if arguments.halves:
            table_TD, title = np.concatenate([table_TD[:, 0::2], table_TD[:, 1::2]], axis=1), "sines, then cosines"
    return Picture(
        lambda: figures.of_positions(table_TD, title),
        {"encodings_TD": table_TD, "products_TT": table_TD @ table_TD.T, "order": title},
        f"{len(table_TD)} positions of {table_TD.shape[1]} dimensions, {title}",
    )


def learned_positions(model_dir: Path) -> FloatArray:
    """Return the table TD of learned positions (of the source, if there are two). Raises UserError if there is none."""
    check_files(model_dir, "torch")
    weights = read_tensors(model_dir / MODEL)
    names = sorted(name for name in weights if name.endswith("positions.table_TD"))  # source_positions come first
    if not names:
        raise UserError(
            f"{model_dir}: this model has no learned positions. Leave MODEL_DIR out to draw sinusoids, or give a model "
            "trained with model.positions=learned"
        )
    table_TD: FloatArray = weights[names[0]].numpy()
    return table_TD


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
    names = ("padding_TT", "causal_TT", "window_TT", "causal_window_TT")
    numbers = {name: mask_TT.numpy() for name, mask_TT in zip(names, drawn.values(), strict=True)}
    return Picture(lambda: figures.of_masks(drawn), numbers, "; ".join(drawn))


POSITIONS = Command(
    "Draws position encodings: an image of positions and dimensions, four dimensions as curves, and the dot\n"
    "products of all pairs of positions. Without a model, these are the sinusoids of Vaswani et al. 2017, with\n"
    "sine and cosine in turn, PE(pos, 2i) and PE(pos, 2i+1), as in the paper. With --halves, all sines come\n"
    "before all cosines, as in tensor2tensor and fairseq: the same numbers in another order.",
    "positions --output positions.png",
    _add_positions,
    _positions,
)
MASKS = Command(
    "Draws which positions may attend to which, for a sentence with padding at its end: the padding mask (of the\n"
    "encoder and of cross-attention), the causal mask of the decoder's self-attention, and the masks of both\n"
    "self-attentions with a window (model.attention_window).",
    "masks --output masks.png",
    _add_masks,
    _masks,
)
