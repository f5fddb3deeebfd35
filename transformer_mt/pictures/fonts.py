"""Which fonts have the characters of a text. matplotlib is an optional package, imported only when it is needed."""

from collections.abc import Sequence
from functools import cache

MAIN_FONT = "DejaVu Sans"  # comes with matplotlib


def without_font(text: str) -> list[str]:
    """The characters that no installed font has. They are drawn as their code points, such as U+4E2D."""
    return [character for character in _lacking(text) if not any(_has(path, character) for path in _others().values())]


def shown(pieces: Sequence[str]) -> list[str]:
    """The pieces, with code points in place of the characters that no font has."""
    names = {character: f"U+{ord(character):04X}" for character in without_font("".join(pieces))}
    return ["".join(names.get(character, character) for character in piece) for piece in pieces]


def _lacking(text: str) -> list[str]:
    """The characters that the main font lacks, each once, in order."""
    from matplotlib import font_manager

    path = font_manager.findfont(MAIN_FONT)
    return [character for character in dict.fromkeys(text) if not _has(path, character)]


def more_fonts(text: str) -> list[str]:
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
