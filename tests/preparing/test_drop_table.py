"""The table of what was left out: right numbers, aligned, never wider than a terminal."""

import re
from collections import Counter

import pytest

from transformer_mt.corpora.filters import KEPT, REASONS, drop_table


def test_one_corpus():
    table = drop_table({"train": Counter({KEPT: 9_890, "blank": 1, "held_out": 109})})
    assert table.splitlines() == [
        "                                         train",
        "pairs                          10,000",
        "  with a blank side                 1    0.01%",
        "  also in validation or test      109    1.09%",
        "left out                          110    1.10%",
        "kept                            9,890   98.90%",
    ]


def test_shares_of_little_and_of_nothing():
    table = drop_table({"a": Counter({KEPT: 10**9 - 1, "digits": 1}), "empty": Counter()})
    assert re.search(r"with too many digits +1 +0\.00%\n", table)
    assert re.search(r"kept +999,999,999 +100\.00%\n", table) and re.search(r"kept +0 +0\.00%\n", table)
    assert table.endswith("\nnote: no pair of empty is left")


@pytest.mark.parametrize("number", [1, 2, 300])
def test_each_corpus_is_shown_and_all_together(number):
    counts = {f"{i}c": Counter({KEPT: 10**9 + i, "blank": 3 * i, "wrong_script": 1}) for i in range(number)}
    table = drop_table(counts)
    assert max(map(len, table.splitlines())) <= 100
    assert re.findall(r"^ +(\d+)c$", table, re.MULTILINE) == [str(i) for i in range(number)]
    assert ("all corpora" in table) == (number > 1)
    assert f"{sum(count[KEPT] for count in counts.values()):,}" in table


def test_every_reason_has_words_and_a_row():
    counts = Counter(dict.fromkeys([KEPT, *REASONS], 7))
    table = drop_table({"train": counts})
    assert [line for words in REASONS.values() for line in table.splitlines() if line.startswith(f"  {words} ")] == [
        line for line in table.splitlines() if line.startswith("  ") and line.strip() != "train"
    ]
