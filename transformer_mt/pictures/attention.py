"""`plot attention`: which piece of a translation looked at which piece of the sentence."""

import argparse
import math
from typing import assert_never

from transformer_mt.decoding.pair_attention import PairAttention
from transformer_mt.models.attention_weights import Attention, FloatArray, index_of
from transformer_mt.pictures import heat_map, sentence
from transformer_mt.pictures.command import Command, Picture
from transformer_mt.pictures.heat_map import Side

_ATTENTION_HELP = """\
Reads a model and a sentence, and draws how much the model attended to each piece of the sentence (columns) while it
wrote each piece of the translation (rows). Each row sums to 1, or with model.local_attention=predictive to less; white
is 0, the darkest blue is 1. Without --target the model first translates the sentence, as `translate` does with the same
key=value. Every model with attention can be drawn; only a Transformer has self-attention, that of the encoder and that
of the decoder. A character that is in no installed font is drawn as its code point, such as U+4E2D, with a warning.

Other pictures have a name of their own, and their own --help:
  plot self-attention    what a word looks at
  plot positions         encodings of positions, sinusoids or learned ones
  plot masks             who may see whom in self-attention
  plot schedule          the learning rate of configurations
  plot curves            loss, likelihood, BLEU and learning rate of runs
  plot lengths           how long the training sentences are
  plot attention         this one; the word can be left out"""

_IN_A_ROW = 4  # so many layers are side by side; more are in a square


def _attention_arguments(parser: argparse.ArgumentParser) -> None:
    sentence.add_arguments(parser)
    parser.add_argument(
        "--attention", choices=["cross", "encoder", "decoder"], default="cross", help="which attention (default: cross)"
    )
    parser.add_argument(
        "--layer",
        metavar="N[,N...]|all",
        type=_layers,
        help="layers; 1 is the lowest, 0 the last but one (default: alignment_layer)",
    )
    parser.add_argument("--heads", action="store_true", help="draw a map for each head, not their mean")


def _layers(text: str) -> list[int]:
    """The numbers of layers; none for all of them."""
    try:
        return [] if text == "all" else [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no layer: give a number, several as in 1,3,6, or all") from None


def _maps(arguments: argparse.Namespace) -> Picture:
    found, decoding = sentence.attention_of(arguments)
    layers_LHTS, rows, columns = kind_of(found, arguments.attention)
    usual = decoding.alignment_layer if arguments.attention == "cross" else 0
    chosen = [usual] if arguments.layer is None else arguments.layer or range(1, len(layers_LHTS) + 1) or [0]
    indices = [index_of(arguments.attention, layer, len(layers_LHTS)) for layer in chosen]
    weights_LHTS = layers_LHTS[indices]
    heads = [f"head {head}" for head in range(1, weights_LHTS.shape[1] + 1)]
    if not arguments.heads:
        weights_LHTS, heads = weights_LHTS.mean(axis=1, keepdims=True), ["mean"]
    layers, maps_MTS = [index + 1 for index in indices], weights_LHTS.reshape(-1, *weights_LHTS.shape[2:])
    titles = [f"layer {layer}, {head}" for layer in layers for head in heads]
    return Picture(
        lambda: heat_map.heat_maps_of(maps_MTS, titles, across(len(layers), len(heads)), rows, columns),
        {
            "weights_LHTS": weights_LHTS,
            "layers": layers,
            "heads": heads,
            "rows": rows.pieces,
            "columns": columns.pieces,
        },
        found.text,
        "".join(rows.pieces + columns.pieces),
    )


def kind_of(found: PairAttention, attention: Attention) -> tuple[FloatArray, Side, Side]:
    """The weights LHTS of an attention; the pieces that attended, which are the rows; and those they attended to."""
    match attention:
        case "cross":
            return found.cross_LHTS, Side("target", found.target), Side("source", found.source)
        case "encoder":
            return found.encoder_LHSS, Side("source", found.source), Side("source", found.source)
        case "decoder":
            # A piece is written at the position of the one before it.
            return found.decoder_LHTT, Side("target", found.target), Side("target before", found.target_before)
        case _:
            assert_never(attention)


def across(num_layers: int, num_heads: int) -> int:
    """How many maps stand side by side. Of several layers with several heads, each layer is a row."""
    if num_layers > 1 and num_heads > 1:
        return num_heads
    number = num_layers * num_heads
    return number if number <= _IN_A_ROW else math.ceil(math.sqrt(number))


ATTENTION = Command(
    _ATTENTION_HELP,
    'runs/demo_en_de/model --source "He sees the house." --output attention.png',
    _attention_arguments,
    _maps,
)
