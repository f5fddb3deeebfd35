"""What the pictures of attention share: a model, a sentence, and its translation."""

import argparse
from pathlib import Path

from transformer_mt.decoding.pair_attention import PairAttention
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.settings.reading import load_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that name the model and the sentence."""
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
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")


def attention_of(arguments: argparse.Namespace) -> tuple[PairAttention, DecodingConfig]:
    """The weights of every attention for the sentence, and the settings of decoding."""
    with Translator.load(arguments.model, arguments.device, workers=1) as translator:
        decoding = load_config(arguments.model / "config.yaml", arguments.overrides, "decoding").decoding
        return translator.attention(arguments.source, arguments.target, decoding), decoding
