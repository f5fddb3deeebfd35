"""What the commands of all pictures share: their options, and what is done with a picture."""

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
    """What it shows: the arrays and labels of --numbers."""
    said: str
    """What is printed behind the name of the file."""
    text: str = ""
    """All text of the user's in it, so that fonts are found which have its characters."""


@dataclass(frozen=True)
class Command:
    """A kind of picture: what its help says, its arguments, and how a picture is made of them."""

    description: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    picture: Callable[[argparse.Namespace], Picture]

    def parser(self, name: str) -> argparse.ArgumentParser:
        """Its parser, with the options of all pictures."""
        description = f"{self.description}\n\nThe same input gives exactly the same file. Needs the package matplotlib."
        made = cli.parser(f"plot {name}", description, f"python -m transformer_mt.plot {self.example}")
        self.add_arguments(made)
        made.add_argument("--output", metavar="FILE", type=Path, required=True, help="the picture: .png, .svg or .pdf")
        made.add_argument("--numbers", metavar="FILE", type=Path, help="also write the numbers of the picture: .npz")
        return made

    def run(self, name: str, argv: Sequence[str]) -> int:
        """Parse the arguments, make the picture of them, and write its files, whose names are checked before."""
        arguments = self.parser(name).parse_intermixed_args(argv)
        picture_file.check(arguments.output)
        if arguments.numbers is not None:
            picture_file.check(arguments.numbers, picture_file.NUMBERS)
        picture = self.picture(arguments)
        if lacking := sorted(fonts_for(picture.text)[1]):
            print(f"warning: no font here has {' '.join(lacking)}: drawn as code points; install one", file=sys.stderr)
        picture_file.write(arguments.output, picture.make, picture.text)
        if arguments.numbers is not None:
            picture_file.write_numbers(arguments.numbers, name, picture.numbers)
        print(f"{cli.shown(arguments.output)}: {picture.said}")
        return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that name the model and the sentence."""
    parser.add_argument(
        "model", metavar="MODEL_DIR", type=Path, help="the directory of a model, such as runs/<name>/model"
    )
    cli.add_overrides(parser, "change a setting of decoding, for example beam_size=5")
    parser.add_argument("--source", metavar="TEXT", required=True, help="the sentence")
    parser.add_argument("--target", metavar="TEXT", help="a translation of it; without it, the model translates")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")


def attention_of(arguments: argparse.Namespace) -> tuple[PairAttention, DecodingConfig]:
    """The weights of every attention for the sentence, and the settings of decoding."""
    with Translator.load(arguments.model, arguments.device, workers=1) as translator:
        decoding = load_config(arguments.model / "config.yaml", arguments.overrides, "decoding").decoding
        return translator.attention(arguments.source, arguments.target, decoding), decoding
