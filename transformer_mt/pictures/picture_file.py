"""Writes pictures: PNG, SVG or PDF, the same picture always as the same bytes.

matplotlib is an optional package, imported only when it is needed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.errors import PictureError
from transformer_mt.pictures.fonts import MAIN_FONT, more_fonts
from transformer_mt.storage.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")


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
        raise PictureError("matplotlib is not installed: `python -m pip install matplotlib`") from None
    return picture_format


def _begins_as(path: Path, picture_format: str) -> bool:
    """Whether the file is empty, or begins like a picture of this format."""
    with path.open("rb") as file:
        beginning = file.read(1000)
    marks = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}
    return not beginning or marks[picture_format] in beginning


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
        matplotlib.rcParams["font.family"] = [MAIN_FONT, *more_fonts(text)]
        matplotlib.rcParams["svg.hashsalt"] = "the same names in the same picture"
        make().savefig(file, format=picture_format, dpi=120, bbox_inches="tight", metadata=nothing)
