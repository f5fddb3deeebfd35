"""`plot attention`: which piece of a translation looked at which piece of the sentence."""

import argparse
import math
from collections.abc import Sequence
from typing import assert_never

from transformer_mt.decoding.pair_attention import PairAttention
from transformer_mt.models.attention_weights import Attention, FloatArray, index_of
from transformer_mt.pictures import command, heat_map, sentence
from transformer_mt.pictures.command import Picture
from transformer_mt.pictures.heat_map import Side
from transformer_mt.settings.decoding import DecodingConfig

_DESCRIPTION = """\
Reads a model and a sentence, and draws how much the model attended to each piece of the sentence (columns) while
it wrote each piece of the translation (rows). Each row sums to 1, or with
model.local_attention=predictive to less; white is 0, the darkest blue is 1. Without --target the model first
translates the sentence, as `translate` does with the same key=value.

This works for every model with attention. Where a layer has several heads, their mean is drawn.
  --layer N              draw this layer; 1 is the lowest, 0 the last but one. Without it: alignment_layer
  --layer 1,3,6          draw these layers side by side; --layer all draws all of them
  --heads                draw a map for each head instead of their mean
Only a Transformer has self-attention:
  --attention encoder    draw how source pieces attended to each other
  --attention decoder    draw how target pieces attended to those before them; <s> is the first

A character that is in no installed font is drawn as its code point, such as U+4E2D, with a warning. The same input
gives exactly the same file. Needs the package matplotlib.

Other pictures have a name of their own, and their own --help:
  plot self-attention    what a word looks at
  plot positions         encodings of positions, sinusoids or learned ones
  plot masks             who may see whom in self-attention
  plot schedule          the learning rate of configurations
  plot curves            loss, likelihood, BLEU and learning rate of runs
  plot lengths           how long the training sentences are
  plot attention         this one; the word can be left out"""

ALL = "all"
_IN_A_ROW = 4  # so many layers are side by side; more are in a square


def attention(argv: Sequence[str]) -> int:
    """Draw one layer of attention or several as heat maps."""
    return command.run("attention", parser(), argv, _picture)


def parser() -> argparse.ArgumentParser:
    """The parser of this picture."""
    made = command.parser(
        "attention",
        _DESCRIPTION,
        'runs/demo_en_de/model --source "He sees the house." --output attention.png',
    )
    sentence.add_arguments(made)
    made.add_argument(
        "--attention", choices=["cross", "encoder", "decoder"], default="cross", help="which attention (default: cross)"
    )
    made.add_argument(
        "--layer", metavar="N[,N...]|all", type=_layers, help="layers; 1 is the lowest (default: alignment_layer)"
    )
    made.add_argument("--heads", action="store_true", help="draw a map for each head")
    return made


def _layers(text: str) -> list[int] | str:
    if text == ALL:
        return ALL
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no layer: give a number, several as in 1,3,6, or all") from None


def _picture(arguments: argparse.Namespace) -> Picture:
    found, decoding = sentence.attention_of(arguments)
    layers_LHTS, rows, columns = kind_of(found, arguments.attention)
    indices = _indices(arguments, decoding, len(layers_LHTS))
    weights_LHTS = layers_LHTS[indices]
    heads = [str(head) for head in range(1, weights_LHTS.shape[1] + 1)]
    if not arguments.heads:
        weights_LHTS, heads = weights_LHTS.mean(axis=1, keepdims=True), ["mean"]
    layers = [index + 1 for index in indices]
    maps_MTS, titles = weights_LHTS.reshape(-1, *weights_LHTS.shape[2:]), _titles(layers, heads)
    across = _across(len(layers), len(heads))
    return Picture(
        lambda: heat_map.figure_of(maps_MTS, titles, across, rows, columns),
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


def _indices(arguments: argparse.Namespace, decoding: DecodingConfig, num_layers: int) -> list[int]:
    """Which layers are drawn, numbered from 0."""
    kind: Attention = arguments.attention
    chosen = arguments.layer
    if chosen is None:
        chosen = [decoding.alignment_layer if kind == "cross" else 0]
    elif chosen == ALL:
        chosen = list(range(1, num_layers + 1)) or [0]
    return [index_of(kind, layer, num_layers) for layer in chosen]


def _titles(layers: Sequence[int], heads: Sequence[str]) -> list[str]:
    """A title for each map, which names what there is more than one of."""
    of_layers = [f"layer {layer}" if len(layers) > 1 else "" for layer in layers]
    of_heads = [f"head {head}" if len(heads) > 1 else "" for head in heads]
    return [", ".join(filter(None, (layer, head))) for layer in of_layers for head in of_heads]


def _across(num_layers: int, num_heads: int) -> int:
    """How many maps stand side by side. Of several layers with several heads, each layer is a row."""
    if num_layers > 1 and num_heads > 1:
        return num_heads
    number = num_layers * num_heads
    return number if num_heads == 1 and number <= _IN_A_ROW else math.ceil(math.sqrt(number))
