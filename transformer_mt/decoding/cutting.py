"""Where a line that is too long is cut: between its sentences, or between its subword pieces."""

from collections.abc import Iterator, Sequence

from transformer_mt.data.sentences import CLOSING, MARKS, WIDE_MARKS
from transformer_mt.decoding.words import WORD


def together(lengths: Sequence[int], most_sentences: int, most_pieces: int) -> Iterator[tuple[int, int]]:
    """Group neighbouring sentences; yields the first sentence of each group and the one after its last.

    `lengths` are the numbers of pieces of the sentences. Each group takes as many sentences as fit. A sentence with
    more than `most_pieces` is a group of its own.
    """
    start, num_pieces = 0, 0
    for number, length in enumerate(lengths):
        if number > start and (number - start == most_sentences or num_pieces + length > most_pieces):
            yield start, number
            start, num_pieces = number, 0
        num_pieces += length
    yield start, len(lengths)


def cut_pieces(pieces: Sequence[str], longest: int) -> Iterator[tuple[int, int]]:
    """Cut a line into parts of at most `longest` pieces; yields the first piece of each and the one after its last.

    A part ends at the last end of a sentence that it could hold. If there is none, it ends after a word; if there is
    none of those either, after a character.
    """
    quality = _quality_of_cuts(pieces)
    start = 0
    while len(pieces) - start > longest:
        window = quality[start + 1 : start + longest + 1]
        best = max(window)
        # 0 everywhere: bytes that are no characters are cut anywhere.
        last_best = max(i for i, value in enumerate(window) if value == best)
        cut = start + longest if best == 0 else start + 1 + last_best
        yield start, cut
        start = cut
    yield start, len(pieces)


def _quality_of_cuts(pieces: Sequence[str]) -> list[int]:
    """How good a cut before each piece is: 3 after a sentence, 2 after a word, 1 after a character, 0 inside one."""
    quality = []
    last = ""  # the last character that closes nothing
    for piece in pieces:
        if _ends_a_sentence(last, piece):
            quality.append(3)
        elif piece.startswith(WORD):
            quality.append(2)
        else:
            quality.append(0 if _continues_a_character(piece) else 1)
        last = (piece.removeprefix(WORD).rstrip(CLOSING) or last)[-1:]
    return quality


def _ends_a_sentence(last: str, following: str) -> bool:
    if not last or following[0] in CLOSING:
        return False
    return last in WIDE_MARKS or (last in MARKS and following.startswith(WORD))


def _continues_a_character(piece: str) -> bool:
    """Whether the piece is a byte from 0x80 to 0xBF, with which no character of UTF-8 begins."""
    return len(piece) == 6 and piece.startswith("<0x") and piece[3] in "89AB"
