"""Where a line is cut that is too long: its sentences, and by its subword pieces."""

from collections.abc import Iterator, Sequence

from transformer_mt.decoding.words import WORD

_ENDS = ".!?…"  # of sentences, where a word follows
_WIDE_ENDS = "。！？"  # noqa: RUF001 - of sentences, whatever follows
_CLOSING = "\"'”’»«›‹“‘)]}」』）】"  # noqa: RUF001 - belongs to the sentence that it comes after


def together(lengths: Sequence[int], most_sentences: int, most_pieces: int) -> Iterator[tuple[int, int]]:
    """Groups of neighbouring sentences: the first of each group and the one after its last.

    `lengths` are their pieces. A group has as many sentences, and pieces, as it may; a sentence with more pieces than
    that is a group of its own.
    """
    start, num_pieces = 0, 0
    for number, length in enumerate(lengths):
        if number > start and (number - start == most_sentences or num_pieces + length > most_pieces):
            yield start, number
            start, num_pieces = number, 0
        num_pieces += length
    yield start, len(lengths)


def segments(pieces: Sequence[str], longest: int) -> Iterator[tuple[int, int]]:
    """The first piece of each segment and the one after its last; no segment has more than `longest` pieces.

    Each is cut at its last end of a sentence; or if it has none at its last end of a word, or at least between
    characters.
    """
    marks = _marks(pieces)
    start = 0
    while len(pieces) - start > longest:
        window = marks[start + 1 : start + longest + 1]
        best = max(window)
        # A mark of 0 everywhere: bytes that are no characters are cut anywhere.
        cut = start + longest if best == 0 else start + 1 + max(i for i, mark in enumerate(window) if mark == best)
        yield start, cut
        start = cut
    yield start, len(pieces)


def _marks(pieces: Sequence[str]) -> list[int]:
    """How good a cut before each piece is: 3 after a sentence, 2 after a word, 1 after a character, 0 inside one."""
    marks = []
    last = ""  # the last character that closes nothing
    for piece in pieces:
        if _ends_a_sentence(last, piece):
            marks.append(3)
        elif piece.startswith(WORD):
            marks.append(2)
        else:
            marks.append(0 if _continues_a_character(piece) else 1)
        last = (piece.removeprefix(WORD).rstrip(_CLOSING) or last)[-1:]
    return marks


def _ends_a_sentence(last: str, following: str) -> bool:
    if not last or following[0] in _CLOSING:
        return False
    return last in _WIDE_ENDS or (last in _ENDS and following.startswith(WORD))


def _continues_a_character(piece: str) -> bool:
    """Whether it is one of the bytes 0x80 to 0xBF, by which no character of UTF-8 begins."""
    return len(piece) == 6 and piece.startswith("<0x") and piece[3] in "89AB"
