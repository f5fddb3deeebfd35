"""Pieces joined to words, and their weights: against plain loops."""

import numpy as np
import pytest

from transformer_mt.reporting.plot_attention import Word, joined, words_of_pieces


def texts(pieces, spaced=True, **ends):
    return [word.text for word in words_of_pieces(pieces, spaced, **ends)]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["▁The", "▁an", "imal", "▁did", "."], ["The", "animal", "did", "."]),
        (["▁(", "it", ")", ",", "▁„", "so", "▁so", "“", "."], ["(", "it", ")", ",", "„", "so", "so", "“", "."]),
        (["▁", "(", "a", "▁", "b"], ["(", "a", "b"]),
        (["▁twenty", "-", "one", "▁don", "'", "t"], ["twenty-one", "don't"]),
        (["▁it", ".", ".", "."], ["it", ".", ".", "."]),
        (["▁...", "▁-", "▁!", "?"], ["...", "-", "!", "?"]),
        (["▁a", "<0xC3>", "<0xA9>", "."], ["aé", "."]),
        (["▁", "<0xFF>"], ["\ufffd"]),
        (["▁5", "$", "▁$", "x"], ["5$", "$x"]),
        (["▁"], ["▁"]),
        (["▁a", "▁", "▁b"], ["a", "▁", "b"]),
        ([], []),
    ],
)
def test_pieces_are_joined_and_signs_stand_by_themselves(pieces, expected):
    assert texts(pieces) == expected
    assert texts(["<s>", *pieces], begins=True) == ["<s>", *expected]
    assert texts([*pieces, "</s>"], ends=True) == [*expected, "</s>"]
    for found in (
        words_of_pieces(pieces, True),
        words_of_pieces(["<s>", *pieces, "</s>"], True, begins=True, ends=True),
    ):
        numbers = [number for word in found for number in word.pieces]
        assert numbers == list(range(len(numbers))), "each piece is in one word"


def test_without_spaces_each_piece_is_a_word():
    assert texts(["▁我们", "是", "<0xE4>", "<0xB8>", "<0xAD>", "。", "</s>"], spaced=False, ends=True) == [
        "我们",
        "是",
        "中",
        "。",
        "</s>",
    ]


def test_weights_between_words_are_sums_over_what_is_seen_and_means_over_what_sees():
    rng = np.random.default_rng(1)
    weights_HTS = rng.dirichlet(np.ones(6), (3, 7)).astype(np.float32)
    rows = [Word("a", [0]), Word("b", [1, 2, 3]), Word("c", [4, 5]), Word("d", [6])]
    columns = [Word("A", [0, 1]), Word("B", [2]), Word("C", [3, 4, 5])]
    found_HNM = joined(weights_HTS, rows, columns)
    assert found_HNM.shape == (3, 4, 3)
    for h in range(3):
        for n, row in enumerate(rows):
            for m, column in enumerate(columns):
                total = 0.0
                for t in row.pieces:
                    for s in column.pieces:
                        total += float(weights_HTS[h, t, s])
                assert found_HNM[h, n, m] == pytest.approx(total / len(row.pieces), abs=1e-6)
    np.testing.assert_allclose(found_HNM.sum(axis=2), np.ones((3, 4)), rtol=1e-5)
