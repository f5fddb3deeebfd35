"""Writes pictures that matplotlib draws, and finds fonts for the letters in them.

The same picture always gives the same bytes. matplotlib is an optional package, so it is imported only when a picture
is drawn.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.base.errors import UserError
from transformer_mt.storage.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> "Figure":
    """Return a figure of this size, in inches. matplotlib arranges its parts automatically."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def fonts_for(text: str) -> tuple[list[str], set[str]]:
    """Return the names of fonts that together have the characters of a text, and the characters that no font has.

    The first is the font that comes with matplotlib; the others are upright system fonts of normal weight.
    """
    from matplotlib import font_manager, get_data_path

    names, lacking = ["DejaVu Sans"], set(text)
    lacking -= _characters(font_manager.findfont(names[0]))
    fonts = [font for font in font_manager.fontManager.ttflist if font.style == "normal" and font.weight == 400]
    for font in sorted(fonts, key=str) if lacking else ():
        if font.fname.startswith(get_data_path()):
            continue  # one of these has an empty box for every character
        if found := lacking & _characters(font.fname):
            names.append(font.name)
            lacking -= found
    return names, lacking


@cache
def _characters(path: str) -> frozenset[str]:
    from matplotlib import font_manager

    return frozenset(map(chr, font_manager.get_font(path).get_charmap()))


# Bytes near the beginning of a file of each format.
FORMATS = {"png": [b"\x89PNG"], "svg": [b"<svg"], "pdf": [b"%PDF"]}
# No date and no version are written, so that the same picture gives the same file.
UNDATED = {"png": ["Software"], "svg": ["Date", "Creator"], "pdf": ["CreationDate", "Creator", "Producer"]}


def write(path: Path, make: Callable[[], "Figure"], text: str = "") -> None:
    """Write the picture that `make` draws; `text` is the text in it. Raises UserError, as `check` does."""
    picture_format = check(path)
    with own_style(text), replacing(path) as file:
        nothing = dict.fromkeys(UNDATED[picture_format])
        make().savefig(file, format=picture_format, dpi=120, bbox_inches="tight", metadata=nothing)


@contextmanager
def own_style(text: str = "", salt: str = "the same names in the same picture") -> Iterator[None]:
    """Ignore the user's matplotlibrc, and use fonts with the letters of `text`. `salt` goes into the ids of an SVG."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # is missing in all fonts: `Command.run` says so
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.family": fonts_for(text)[0], "svg.hashsalt": salt})
        yield


def check(path: Path, formats: Mapping[str, Sequence[bytes]] = FORMATS) -> str:
    """Return the format given by the ending of `path`.

    Raises UserError if it is none of `formats`, if matplotlib is not installed, or if the file exists but is not of
    this format: an existing file must be empty, or have all marks of its format near its beginning.
    """
    if find_spec("matplotlib") is None:
        raise UserError("matplotlib is not installed. Install it: `python -m pip install matplotlib`")
    found = path.suffix.removeprefix(".").lower()
    if found not in formats:
        raise UserError(f"{path}: the name must end in .{', .'.join(formats)}")
    if path.is_file():
        with path.open("rb") as file:
            beginning = file.read(1000)
        if beginning and not all(mark in beginning for mark in formats[found]):
            raise UserError(
                f"{path} exists, and is not a .{found} written by this command; nothing was changed. Give another file"
            )
    return found
