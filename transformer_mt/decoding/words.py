"""Words, which whitespace parts, and the subword pieces that they consist of."""

from collections.abc import Sequence

WORD = "\u2581"  # sentencepiece's sign for a space: before the first piece of a word


def words_of(pieces: Sequence[str]) -> list[int]:
    """The number, from 0, of the word that each piece of a line belongs to."""
    numbers, number = [], 0
    for index, piece in enumerate(pieces):
        number += index > 0 and piece.startswith(WORD)
        numbers.append(number)
    return numbers
