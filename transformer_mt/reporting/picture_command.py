"""The common part of the commands of all pictures: their options, and writing the files."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.decoding.translation import PairAttention
from transformer_mt.decoding.translator import Translator
from transformer_mt.reporting import picture_file
from transformer_mt.reporting.picture_file import fonts_for
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.terminal import cli

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A picture that is not drawn yet."""

    make: Callable[[], "Figure"]
    numbers: picture_file.Numbers
    """The arrays and labels for --numbers."""
    summary: str
    """The text to print after the name of the file."""
    text: str = ""
    """All of the user's text in the picture, to find fonts with its characters."""


@dataclass(frozen=True)
class Command:
    """A kind of picture: its help text, its arguments, and the function that makes a picture from them."""

    description: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    picture: Callable[[argparse.Namespace], Picture]

    def parser(self, name: str) -> argparse.ArgumentParser:
        """Return the parser, with the options that all pictures have."""
        description = f"{self.description}\n\nThe same input gives exactly the same file. Needs the package matplotlib."
        made = cli.parser(f"plot {name}", description, f"python -m transformer_mt.plot {self.example}")
        self.add_arguments(made)
        made.add_argument("--output", metavar="FILE", type=Path, required=True, help="picture: .png, .svg or .pdf")
        made.add_argument("--numbers", metavar="FILE", type=Path, help="also write the numbers in the picture: .npz")
        return made

    def run(self, name: str, argv: Sequence[str]) -> int:
        """Parse the arguments, check the names of the files, make the picture, and write it."""
        arguments = self.parser(name).parse_intermixed_args(argv)
        picture_file.check(arguments.output)
        if arguments.numbers is not None:
            picture_file.check(arguments.numbers, picture_file.NUMBERS)
        picture = self.picture(arguments)
        if lacking := sorted(fonts_for(picture.text)[1]):
            print(f"warning: no font has {' '.join(lacking)}, so code points are drawn: install one", file=sys.stderr)
        picture_file.write(arguments.output, picture.make, picture.text)
        if arguments.numbers is not None:
            picture_file.write_numbers(arguments.numbers, name, picture.numbers)
        print(f"{cli.shown(arguments.output)}: {picture.summary}")
        return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the model and the sentence."""
    cli.add_model(parser)
    cli.add_settings(parser, "change a setting of decoding, for example beam_size=5")
    parser.add_argument("--source", metavar="TEXT", required=True, help="the sentence")
    parser.add_argument("--target", metavar="TEXT", help="its translation (default: the model translates it)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")


def attention_of(arguments: argparse.Namespace) -> tuple[PairAttention, DecodingConfig]:
    """Return the weights of all attentions for the sentence, and the settings of decoding."""
    with Translator.load(arguments.model, arguments.device, workers=1) as translator:
        decoding = load_config(arguments.model / "config.yaml", arguments.overrides, "decoding").decoding
        return translator.attention(arguments.source, arguments.target, decoding), decoding
