"""Which fonts have the characters of a text. matplotlib is an optional package, imported only when it is needed."""

from collections.abc import Sequence
from functools import cache


def fonts_for(text: str) -> tuple[list[str], set[str]]:
    """The names of fonts that together have the characters of a text, and the characters that none has.

    The first is the font that comes with matplotlib; the others are upright system fonts of normal weight.
    """
    from matplotlib import font_manager, get_data_path

    names, lacking = ["DejaVu Sans"], set(text)
    lacking -= _characters(font_manager.findfont(names[0]))
    fonts = [font for font in font_manager.fontManager.ttflist if font.style == "normal" and font.weight == 400]
    for font in sorted(fonts, key=str) if lacking else ():
        if font.fname.startswith(get_data_path()):
            continue  # among them is a font of last resort, which has a box for every character
        if found := lacking & _characters(font.fname):
            names.append(font.name)
            lacking -= found
    return names, lacking


def shown(pieces: Sequence[str]) -> list[str]:
    """The pieces, with code points such as U+4E2D in place of the characters that no font has."""
    names = {ord(character): f"U+{ord(character):04X}" for character in fonts_for("".join(pieces))[1]}
    return [piece.translate(names) for piece in pieces]


@cache
def _characters(path: str) -> frozenset[str]:
    """The characters that a font has."""
    from matplotlib import font_manager

    return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
