"""Draws attention weights as a heat map. matplotlib is an optional package, imported only when it is needed.

H heads, with one map each  T rows  S columns
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from transformer_mt.errors import PictureError
from transformer_mt.storage.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")

# In inches. A cell is as large as a line of text, unless maps would become larger than about a page.
_CELL, _LONGEST_SIDE = 0.24, 16.0
_FONT = "DejaVu Sans"  # comes with matplotlib


@dataclass(frozen=True)
class Side:
    """The labels of the rows or the columns of a map."""

    name: str
    pieces: list[str]


def check(path: Path) -> str:
    """The picture format that the ending of `path` names.

    Raises PictureError for an unknown format, if the file exists and is not such a picture, and if matplotlib is not
    installed.
    """
    picture_format = path.suffix.removeprefix(".").lower()
    if picture_format not in FORMATS:
        raise PictureError(f"{path}: the name of a picture must end in .{', .'.join(FORMATS)}")
    if path.is_file() and not _begins_as(path, picture_format):
        raise PictureError(
            f"{path}: is there already, and is not a picture in the format {picture_format}, so it is left as it is. "
            "Name another file"
        )
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise PictureError(
            "matplotlib is not installed: `python -m pip install 'transformer-mt[plot]'`, or "
            "`python -m pip install matplotlib`"
        ) from None
    return picture_format


def _begins_as(path: Path, picture_format: str) -> bool:
    """Whether the file is empty, or begins like a picture of this format."""
    with path.open("rb") as file:
        beginning = file.read(1000)
    marks = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}
    return not beginning or marks[picture_format] in beginning


def draw(weights_HTS: Tensor, rows: Side, columns: Side, path: Path) -> None:
    """Write a picture of one map, or of several with numbers. The same maps always give the same bytes.

    White is 0, and the darkest blue is 1. Raises PictureError like `check`, or UserError if it cannot be written.
    """
    write(path, lambda: figure_of(weights_HTS, rows, columns), "".join(rows.pieces + columns.pieces))


def write(path: Path, make: Callable[[], "Figure"], text: str = "") -> None:
    """Write the picture that is made, in which that text stands. The same picture always gives the same bytes.

    Raises PictureError like `check`, or UserError if it cannot be written.
    """
    picture_format = check(path)
    import matplotlib

    # No date and no version are written, so that the same picture gives the same file.
    undated = {"png": ["Software"], "svg": ["Date", "Creator"], "pdf": ["CreationDate", "Creator", "Producer"]}
    nothing = dict.fromkeys(undated[picture_format])
    with matplotlib.rc_context(), replacing(path) as file:
        matplotlib.rcdefaults()  # whatever the user's matplotlibrc says
        matplotlib.rcParams["font.family"] = [_FONT, *_more_fonts(text)]
        matplotlib.rcParams["svg.hashsalt"] = "the same names in the same picture"
        make().savefig(file, format=picture_format, dpi=120, bbox_inches="tight", metadata=nothing)


def without_font(text: str) -> list[str]:
    """The characters that no installed font has. They are drawn as their code points, such as U+4E2D."""
    return [character for character in _lacking(text) if not any(_has(path, character) for path in _others().values())]


def figure_of(weights_HTS: Tensor, rows: Side, columns: Side) -> "Figure":
    """The maps in a grid, and a bar that shows what the colours mean."""
    from matplotlib.figure import Figure

    H, T, S = weights_HTS.shape
    across = math.ceil(math.sqrt(H))
    down = math.ceil(H / across)
    cell = min(_CELL, _LONGEST_SIDE / max(across * S, down * T))
    points = min(10.0, 0.6 * cell * 72)  # an inch has 72
    labels = [_shown(side.pieces) for side in (rows, columns)]
    # A letter is at most about 0.4 cells wide; the rest of the room is for names and gaps.
    room = [0.7 + 0.4 * cell * max(map(len, texts)) for texts in labels]
    size = (across * (cell * S + room[0]) + 1.0, down * (cell * T + room[1]))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).flatten().tolist()
    for head, axes in enumerate(grid[:H]):
        image = axes.imshow(weights_HTS[head].numpy(), cmap="Blues", vmin=0.0, vmax=1.0)
        # parse_math=False, since a piece may be a dollar sign.
        axes.set_yticks(range(T), labels[0], parse_math=False, fontsize=points)
        axes.set_xticks(range(S), labels[1], parse_math=False, fontsize=points, rotation=90)
        axes.tick_params(length=0)
        axes.set(ylabel=rows.name, xlabel=columns.name, title=f"head {head + 1}" if H > 1 else "")
    for axes in grid[H:]:
        axes.remove()
    figure.colorbar(image, ax=grid[:H], shrink=0.5, aspect=15, ticks=[0, 1])
    return figure


def _shown(pieces: Sequence[str]) -> list[str]:
    names = {character: f"U+{ord(character):04X}" for character in without_font("".join(pieces))}
    return ["".join(names.get(character, character) for character in piece) for piece in pieces]


def _lacking(text: str) -> list[str]:
    """The characters that the main font lacks, each once, in order."""
    from matplotlib import font_manager

    path = font_manager.findfont(_FONT)
    return [character for character in dict.fromkeys(text) if not _has(path, character)]


def _more_fonts(text: str) -> list[str]:
    """The names of system fonts that have some characters of a text which the main font lacks."""
    lacking = _lacking(text)
    return [name for name, path in _others().items() if any(_has(path, character) for character in lacking)]


def _others() -> dict[str, str]:
    """The names and files of upright system fonts of normal weight, without those that come with matplotlib."""
    import matplotlib
    from matplotlib import font_manager

    fonts = [font for font in font_manager.fontManager.ttflist if font.style == "normal" and font.weight == 400]
    ours = matplotlib.get_data_path()
    return {font.name: font.fname for font in sorted(fonts, key=str) if not font.fname.startswith(ours)}


@cache
def _characters(path: str) -> frozenset[int]:
    """The code points that a font has."""
    from matplotlib import font_manager

    return frozenset(font_manager.get_font(path).get_charmap())


def _has(path: str, character: str) -> bool:
    return ord(character) in _characters(path)
