"""Finds the words, or characters in a language without spaces, to which the subword pieces of a line belong."""

import re
from collections.abc import Sequence
from itertools import accumulate

WORD = "\u2581"  # SentencePiece's sign for a space; the first piece of a word begins with it
_BYTE = re.compile("<0x[0-9A-F]{2}>")
CONTINUES = re.compile("<0x[89AB][0-9A-F]>")  # a byte of UTF-8 that is not the first of its character


def byte_of(piece: str) -> int | None:
    """The byte that a piece such as <0x0A> stands for; None if it stands for text."""
    return int(piece[3:5], 16) if _BYTE.fullmatch(piece) else None


def text_of(pieces: Sequence[str]) -> str:
    """The text of the pieces, without spaces around it. Bytes that are not UTF-8 become U+FFFD."""
    spelt = b"".join(
        piece.replace(WORD, " ").encode("utf-8") if (byte := byte_of(piece)) is None else bytes([byte])
        for piece in pieces
    )
    return spelt.decode("utf-8", errors="replace").strip()


def characters_of(pieces: Sequence[str]) -> list[range]:
    """For each piece of a line, the numbers of the characters to which it belongs, from 0. Spaces do not count."""
    found, end = [], 0
    for piece in pieces:
        if end > 0 and CONTINUES.fullmatch(piece):
            start = end - 1
        else:
            start, end = end, end + (1 if _BYTE.fullmatch(piece) else len(piece.replace(WORD, "")))
        found.append(range(start, end))
    return found


def units_of(pieces: Sequence[str], spaced: bool) -> list[range]:
    """For each piece of a line, the numbers, from 0, of its units: its word or, without spaces, its characters."""
    if not spaced:
        return characters_of(pieces)
    words = accumulate((piece.startswith(WORD) for piece in pieces[1:]), initial=0)
    return [range(word, word + 1) for word, _ in zip(words, pieces, strict=False)]


def written_together(pieces: Sequence[str], spaced: bool) -> list[list[int]]:
    """Group the indices of pieces that form a word or, without spaces, one or more complete characters."""
    groups, end = list[list[int]](), 0
    for index, units in enumerate(units_of(pieces, spaced)):
        if units.start < end:
            groups[-1].append(index)
        else:
            groups.append([index])
        end = units.stop
    return groups
