"""Properties of cutting a line that is too long."""

import random

from transformer_mt.decoding.line_parts import cut_pieces
from transformer_mt.decoding.word_pieces import WORD, units_of


def cut(text: str, longest: int, width: int = 1) -> list[str]:
    """The parts of a text whose pieces are `width` characters of a word."""
    pieces = []
    for word in text.split(" "):
        marked = WORD + word
        pieces += [marked[start : start + width] for start in range(0, len(marked), width)]
    found = list(cut_pieces(pieces, longest))
    assert all(0 < stop - start <= longest for start, stop in found)
    assert [0, *(stop for _, stop in found)] == [*(start for start, _ in found), len(pieces)]
    return ["".join(pieces[start:stop]).replace(WORD, " ").strip() for start, stop in found]


def test_a_line_that_fits_is_whole():
    assert cut("One two. Three.", 16) == ["One two. Three."]
    assert list(cut_pieces([], 5)) == [(0, 0)]


def test_words_are_cut_apart_and_without_words_characters():
    assert cut("aa bb cc dd", 7) == ["aa bb", "cc dd"]
    assert cut("abcdefgh", 4) == ["abc", "defg", "h"]


def test_no_character_is_cut_in_bytes_unless_there_is_no_other_way():
    pieces = [WORD, *(f"<0x{byte:02X}>" for byte in "日本語".encode())]
    assert list(cut_pieces(pieces, 5)) == [(0, 4), (4, 7), (7, 10)]
    assert list(cut_pieces(pieces, 2)) == [(0, 1), (1, 3), (3, 4), (4, 6), (6, 7), (7, 9), (9, 10)]


def test_any_text_is_cut_into_all_of_itself():
    draw = random.Random(1)
    for _ in range(300):
        text = " ".join("".join(draw.choices("ab.!?。」)", k=draw.randint(1, 6))) for _ in range(draw.randint(1, 12)))
        longest = draw.randint(2, 20)
        assert "".join(cut(text, longest, draw.randint(1, 3))).replace(" ", "") == text.replace(" ", "")


def test_each_piece_belongs_to_the_word_that_it_is_in():
    units = units_of([f"{WORD}One", "s", f"{WORD}two", ".", WORD, "<0x41>"], spaced=True)
    assert [unit.start for unit in units] == [0, 0, 1, 1, 2, 2]
    assert units_of(["s", f"{WORD}two"], spaced=True) == [range(0, 1), range(1, 2)]
    assert units_of([], spaced=True) == []
