"""Where a line that is too long is cut: between its sentences, or between its words."""

from collections.abc import Iterator, Sequence

from transformer_mt.decoding.words import CONTINUES, WORD


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
    """Cut a sentence into parts of at most `longest` pieces; yields the first piece of each and the one after its last.

    A part ends after a word; if it holds no whole word, after a character; bytes that are no characters are cut
    anywhere.
    """
    start = 0
    while len(pieces) - start > longest:
        window = range(start + longest, start, -1)
        words = (i for i in window if pieces[i].startswith(WORD))
        characters = (i for i in window if not CONTINUES.fullmatch(pieces[i]))
        cut = next(words, next(characters, start + longest))
        yield start, cut
        start = cut
    yield start, len(pieces)
