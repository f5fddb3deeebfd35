"""What is found in training lines: the same as by the rules for sentences and words, in blocks as line by line."""

import json
from collections import Counter

import pytest

from transformer_mt.data import line_words
from transformer_mt.data.line_words import LineWords, look_at
from transformer_mt.data.sentences import first_word, later_words, split_sentences

LINES = [
    *("", " ", "One.", "One. Two.", "One! ", "he sees Tom", "The Dog", "the dog.", "  Then He goes.", "A.B. C"),
    *("“Go.” He went.", "Wait… what", "3. Mai", "犬。猫", "犬。", "犬。 ", "no mark", "A"),
    *("the Ⅷ th", "x.", "x . y", "É È", "ß ẞ ß"),
]


@pytest.mark.parametrize("line", LINES)
def test_the_short_cuts_find_what_the_rules_find(line: str) -> None:
    found = look_at([line], "de")
    words = [word for word in later_words(line) if word != word.lower()]
    assert found.sentences == [len(split_sentences(line, "de"))]
    assert found.first_words == [first_word(line)]
    assert found.later_words == ([words] if words else [])


@pytest.mark.parametrize("kept", [2, 3, 5, 1000])
def test_lines_in_blocks_are_counted_as_one_by_one(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """Also where words are forgotten, which depends on what was there before."""
    monkeypatch.setattr(line_words, "_KEPT_WORDS", kept)
    lines = [f"W{i * i % 17} sees W{i * 7 % 23} and W{i % 5} now. Yes." for i in range(200)]
    one_by_one, in_blocks = LineWords(), LineWords()
    for line in lines:
        one_by_one.add(look_at([line], "en"))
    for start in range(0, len(lines), 30):
        in_blocks.add(look_at(lines[start : start + 30], "en"))
    assert in_blocks == one_by_one
    assert list(in_blocks.later_words) == list(one_by_one.later_words)
    assert LineWords.of(json.loads(json.dumps(in_blocks.content))) == in_blocks


def test_what_was_counted_of_every_third_line_counts_three_times() -> None:
    some, others = LineWords(), LineWords()
    some.add(look_at(["The dog."], "en"))
    others.add(look_at(["The dog. The Cat runs.", "A dog."], "en"))
    some.merge(others, 3)
    assert some.sentences == {1: 4, 2: 3}
    assert some.first_words == Counter({"The": 4, "A": 3})
    assert some.later_words == Counter({"Cat": 3})
