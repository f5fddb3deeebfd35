"""`plot lengths`: how long the sentences of a prepared corpus are."""

import argparse
from pathlib import Path

import numpy as np

from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.pictures import figures
from transformer_mt.pictures.command import Command, Picture
from transformer_mt.settings.reading import load_config


def _lengths_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", type=Path, help="a configuration")
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="change a setting")


def _lengths(arguments: argparse.Namespace) -> Picture:
    config = load_config(arguments.config, arguments.overrides)
    corpus = EncodedCorpus.load(Path(config.data_dir) / "train")
    pairs = np.arange(len(corpus))
    sides = {"source": corpus.source.lengths(pairs), "target": corpus.target.lengths(pairs)}
    means = ", ".join(f"{side.mean():.1f} {name} pieces" for name, side in sides.items())
    return Picture(
        lambda: figures.of_lengths(sides),
        {"source_N": sides["source"], "target_N": sides["target"]},
        f"{len(corpus):,} pairs, on average {means}",
    )


LENGTHS = Command(
    "Draws how long the training sentences are that `prepare` has written, in subword pieces with the end of the\n"
    "sentence: of each side by itself, and of both sides of a pair.",
    "lengths configs/demo_en_de.yaml --output lengths.png",
    _lengths_arguments,
    _lengths,
)
