"""Which words, or characters, the pieces of a line belong to."""

import pytest

from transformer_mt.decoding.word_pieces import characters_of, units_of, written_together
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.text.tokenizer import Tokenizer

CHINESE = [f"{who}{verb}{what}。" for who in ("我", "你们") for verb in ("喜欢", "看见") for what in ("房子", "狗")]
LINE = "我喜欢 🙂 IBM 房子。"


@pytest.fixture(scope="module")
def chinese():
    return Tokenizer.train(CHINESE * 3, CHINESE * 3, TokenizerConfig(vocab_size=290))


def test_characters_are_those_of_the_line_without_spaces(chinese):
    ids = chinese.encode_source([LINE])[0][:-1]
    pieces = chinese.source_pieces(ids)
    assert any(len(piece) > 1 and piece[0] != "<" for piece in pieces)
    found = characters_of(pieces)
    characters = "".join(LINE.split())
    assert sorted({number for numbers in found for number in numbers}) == list(range(len(characters)))
    for piece, numbers in zip(pieces, found, strict=True):
        text = "".join(characters[number] for number in numbers)
        assert text == piece.replace("▁", "") or (piece.startswith("<0x") and len(text) == 1)


def test_bytes_of_a_character_are_its_own_alone():
    assert characters_of(["▁", "<0xE6>", "<0x88>", "<0x91>", "<0x41>", "a▁b"]) == [
        range(0),
        *[range(0, 1)] * 3,
        range(1, 2),
        range(2, 4),
    ]
    # A part of a line may begin in the middle of a character.
    assert characters_of(["<0x88>", "<0x91>", "a"]) == [range(0, 1), range(0, 1), range(1, 2)]


def test_units_are_words_with_spaces_and_characters_without():
    pieces = ["▁ab", "c", "▁d"]
    assert units_of(pieces, spaced=True) == [range(0, 1), range(0, 1), range(1, 2)]
    assert units_of(pieces, spaced=False) == [range(0, 2), range(2, 3), range(3, 4)]


def test_what_is_written_together_is_a_word_or_the_bytes_of_a_character():
    pieces = ["▁ab", "c", "▁d", "<0xE6>", "<0x88>", "<0xE6>", "<0x88>", "<0x91>", "e"]
    assert written_together(pieces, spaced=True) == [[0, 1], [2, 3, 4, 5, 6, 7, 8]]
    assert written_together(pieces, spaced=False) == [[0], [1], [2], [3, 4], [5, 6, 7], [8]]
    assert written_together([], spaced=True) == written_together([], spaced=False) == []
