"""Words, or characters where a language has no spaces, and the subword pieces that they consist of."""

import re
from collections.abc import Sequence

WORD = "\u2581"  # sentencepiece's sign for a space: before the first piece of a word
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_CONTINUES = re.compile("<0x[89AB][0-9A-F]>")  # UTF-8: not the first byte of its character


def words_of(pieces: Sequence[str]) -> list[int]:
    """The number, from 0, of the word that each piece of a line belongs to."""
    numbers, number = [], 0
    for index, piece in enumerate(pieces):
        number += index > 0 and piece.startswith(WORD)
        numbers.append(number)
    return numbers


def characters_of(pieces: Sequence[str]) -> list[range]:
    """The numbers, from 0, of the characters of a line that each piece has a part in; spaces are not counted."""
    found, end = [], 0
    for piece in pieces:
        if end > 0 and _CONTINUES.fullmatch(piece):
            start = end - 1
        else:
            start, end = end, end + (1 if _BYTE.fullmatch(piece) else len(piece.replace(WORD, "")))
        found.append(range(start, end))
    return found


def units_of(pieces: Sequence[str], spaced: bool) -> list[range]:
    """What an alignment is about, by numbers: the word of each piece, or without spaces the characters in it."""
    return [range(word, word + 1) for word in words_of(pieces)] if spaced else characters_of(pieces)


def written_together(pieces: Sequence[str], spaced: bool) -> list[list[int]]:
    """The indices of the pieces in groups: of a word each, or without spaces of one or several whole characters."""
    words, groups = words_of(pieces), list[list[int]]()
    for index, piece in enumerate(pieces):
        if index == 0:
            goes_on = False
        elif spaced:
            goes_on = words[index] == words[index - 1]
        else:
            goes_on = bool(_CONTINUES.fullmatch(piece) and _BYTE.fullmatch(pieces[index - 1]))
        if goes_on:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
