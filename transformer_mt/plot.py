"""Draws the attention of a model: which piece of a translation looked at which piece of the sentence.

And by the name of a picture what else books draw: see plot_figures.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from torch import Tensor

from transformer_mt import plot_figures
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.engine import Engine, Sentence
from transformer_mt.decoding.loading import load_model
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.errors import NotFiniteError, TranslationError
from transformer_mt.evaluation import heat_map
from transformer_mt.evaluation.heat_map import Side
from transformer_mt.models.attention_weights import Attention
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.settings.reading import load_config
from transformer_mt.terminal import cli
from transformer_mt.vocabulary import BOS

_FIGURES = {
    "positions": plot_figures.positions,
    "masks": plot_figures.masks,
    "schedule": plot_figures.schedule,
    "curves": plot_figures.curves,
    "lengths": plot_figures.lengths,
}

_DESCRIPTION = """\
Reads a model and a sentence, and draws how much the model attended to each piece of the sentence (columns) while
it wrote each piece of the translation (rows). Each row sums to 1, or with
model.local_attention=predictive to less; white is 0, the darkest blue is 1. Without --target the model first
translates the sentence, as `translate` does with the same key=value.

This works for every model with attention. For a Transformer it shows the mean of the heads of one layer, which is
chosen by alignment_layer=N. Only a Transformer has these options:
  --heads                draw a map for each head instead of their mean
  --layer N              draw this layer; 1 is the lowest, 0 (the default) is the last but one
  --attention encoder    draw how source pieces attended to each other
  --attention decoder    draw how target pieces attended to those before them; <s> is the first

A character that is in no installed font is drawn as its code point, such as U+4E2D, with a warning. The same input
gives exactly the same file. Needs matplotlib: the extra transformer-mt[plot].

Other pictures have a name of their own, and their own --help:
  plot positions         encodings of positions, sinusoids or learned ones
  plot masks             who may see whom in self-attention
  plot schedule          the learning rate of configurations
  plot curves            loss, likelihood, BLEU and learning rate of runs
  plot lengths           how long the training sentences are
  plot attention         this one; the word can be left out"""


def main(argv: Sequence[str] | None = None) -> int:
    """Draw one picture."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in _FIGURES:
        return _FIGURES[words[0]](words[1:])
    arguments = _parser().parse_intermixed_args(words[1:] if words[:1] == ["attention"] else words)
    heat_map.check(arguments.output)
    model = load_model(arguments.model, arguments.device, "torch", "fp32", "none", workers=1)
    assert isinstance(model.engine, TorchEngine)
    decoding = load_config(arguments.model / "config.yaml", arguments.overrides, "decoding").decoding
    source = _ids(arguments.source, "source", model.tokenizer, model.engine)
    if arguments.target is None:
        (found,) = model.engine.translate([Sentence(source)], decoding)
        if not found:
            raise NotFiniteError.of_line(1)
        target = found[0].tokens
    else:
        target = _ids(arguments.target, "target", model.tokenizer, model.engine)
    weights_HTS = _weights(model.engine, source, target, decoding, arguments)
    rows, columns = _sides(arguments.attention, source, target, model.tokenizer)
    if lacking := heat_map.without_font("".join(rows.pieces + columns.pieces)):
        print(f"warning: no font here has {' '.join(lacking)}: drawn as code points; install one", file=sys.stderr)
    heat_map.draw(weights_HTS, rows, columns, arguments.output)
    print(f"{cli.shown(arguments.output)}: {model.tokenizer.decode_target(target)}")
    return 0


def _ids(text: str, side: str, tokenizer: Tokenizer, engine: Engine) -> list[int]:
    """Return the ids of a text and EOS."""
    [ids] = tokenizer.encode_source([text]) if side == "source" else tokenizer.encode_target([text])
    if len(ids) == 1:
        raise TranslationError(f"--{side} is blank: give a sentence")
    if len(ids) > engine.max_positions:
        raise TranslationError(
            f"--{side} has {len(ids):,} subword pieces, and the model takes at most {engine.max_positions:,} "
            "(model.max_positions): give a single, shorter sentence"
        )
    return ids


def _weights(
    engine: TorchEngine, source: list[int], target: list[int], decoding: DecodingConfig, arguments: argparse.Namespace
) -> Tensor:
    """Return a map for each head, or the mean of all as one map; HTS."""
    if arguments.attention == "cross" and arguments.layer is None and not arguments.heads:
        return engine.attention_to_source(source, target, decoding.alignment_layer)[None]
    layer = arguments.layer
    if layer is None:
        layer = decoding.alignment_layer if arguments.attention == "cross" else 0
    heads_HTS = engine.attention_weights(source, target).heads(arguments.attention, layer)[0]
    return heads_HTS if arguments.heads else heads_HTS.mean(dim=0, keepdim=True)


def _sides(attention: Attention, source: list[int], target: list[int], tokenizer: Tokenizer) -> tuple[Side, Side]:
    """Return the pieces that attended, which are the rows, and the pieces that were attended to, the columns."""
    sources = tokenizer.source_pieces(source)
    targets = Side("target", tokenizer.target_pieces(target))
    match attention:
        case "cross":
            return targets, Side("source", sources)
        case "encoder":
            return Side("source", sources), Side("source", sources)
        case "decoder":
            # A piece is written at the position of the one before it.
            return targets, Side("target before", tokenizer.target_pieces([BOS, *target[:-1]]))
        case _:
            assert_never(attention)


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(
        "plot",
        _DESCRIPTION,
        'python -m transformer_mt.plot runs/demo_en_de/model --source "He sees the house." --output attention.png',
    )
    parser.add_argument(
        "model", metavar="MODEL_DIR", type=Path, help="the directory of a model, such as runs/<name>/model"
    )
    parser.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        default=[],
        help="change a setting of decoding, for example beam_size=5",
    )
    parser.add_argument("--source", metavar="TEXT", required=True, help="the sentence")
    parser.add_argument("--target", metavar="TEXT", help="a translation of it; without it, the model translates")
    parser.add_argument("--output", metavar="FILE", type=Path, required=True, help="the picture: a .png, .svg or .pdf")
    parser.add_argument(
        "--attention", choices=["cross", "encoder", "decoder"], default="cross", help="which attention (default: cross)"
    )
    parser.add_argument("--layer", metavar="N", type=int, help="a layer; 1 is the lowest (default: alignment_layer)")
    parser.add_argument("--heads", action="store_true", help="draw a map for each head")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(main))
