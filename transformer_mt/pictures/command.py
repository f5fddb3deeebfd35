"""What the commands of all pictures share: --output, --numbers, and what is done with a picture."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.pictures import fonts, numbers, picture_file
from transformer_mt.pictures.numbers import Numbers
from transformer_mt.terminal import cli

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A picture that is not drawn yet."""

    make: Callable[[], "Figure"]
    numbers: Numbers
    """What it shows: the arrays and labels of --numbers."""
    said: str
    """What is printed behind the name of the file."""
    text: str = ""
    """All text of the user's in it, so that fonts are found which have its characters."""


def parser(name: str, description: str, example: str) -> argparse.ArgumentParser:
    """The parser of a picture, with the options of all pictures."""
    made = cli.parser(f"plot {name}", description, f"python -m transformer_mt.plot {example}")
    made.add_argument("--output", metavar="FILE", type=Path, required=True, help="the picture: a .png, .svg or .pdf")
    made.add_argument(
        "--numbers", metavar="FILE", type=Path, help="also write the numbers of the picture: a .npz or .json"
    )
    return made


def run(
    name: str, parser: argparse.ArgumentParser, argv: Sequence[str], picture_of: Callable[[argparse.Namespace], Picture]
) -> int:
    """Parse the arguments, make the picture of them, and write its files. Both names are checked before the work."""
    arguments = parser.parse_intermixed_args(argv)
    picture_file.check(arguments.output)
    if arguments.numbers is not None:
        numbers.check(arguments.numbers)
    picture = picture_of(arguments)
    if lacking := fonts.without_font(picture.text):
        print(f"warning: no font here has {' '.join(lacking)}: drawn as code points; install one", file=sys.stderr)
    picture_file.write(arguments.output, picture.make, picture.text)
    if arguments.numbers is not None:
        numbers.write(arguments.numbers, name, picture.numbers)
    print(f"{cli.shown(arguments.output)}: {picture.said}")
    return 0
