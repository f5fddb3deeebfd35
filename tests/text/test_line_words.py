"""What is found in training lines: the same as by the rules for sentences and words."""

import json
from collections import Counter

import pytest

from transformer_mt.text import training_lines
from transformer_mt.text.sentences import first_word, later_words, split_sentences
from transformer_mt.text.training_lines import LineWords, count_words

LINES = [
    *("", " ", "One.", "One. Two.", "One! ", "he sees Tom", "The Dog", "the dog.", "  Then He goes.", "A.B. C"),
    *("“Go.” He went.", "Wait… what", "3. Mai", "犬。猫", "犬。", "犬。 ", "no mark", "A"),
    *("the Ⅷ th", "x.", "x . y", "É È", "ß ẞ ß"),
]


@pytest.mark.parametrize("line", LINES)
def test_the_short_cuts_find_what_the_rules_find(line: str) -> None:
    found = count_words([line], "de")
    assert found.sentences == {len(split_sentences(line, "de")): 1}
    assert found.first_words == {first_word(line): 1}
    assert found.later_words == Counter(word for word in later_words(line) if word != word.lower())


@pytest.mark.parametrize("kept", [5, 1000])
def test_lines_in_blocks_are_counted_and_the_most_frequent_words_stay(
    monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(training_lines, "_KEPT_WORDS", kept)
    lines = [f"{'The' if i % 2 else f'W{i * i % 17}'} sees W{i * 7 % 23} and Tom now. Yes." for i in range(200)]
    in_blocks, all_words = LineWords(), count_words(lines, "en")
    for start in range(0, len(lines), 30):
        in_blocks.merge(count_words(lines[start : start + 30], "en"))
    assert in_blocks.sentences == all_words.sentences
    assert in_blocks.first_words["The"] == 100 and in_blocks.later_words["Tom"] == 200
    assert (in_blocks == all_words) == (kept == 1000)
    assert len(in_blocks.later_words) <= 2 * kept
    assert LineWords.of(json.loads(json.dumps(in_blocks.content))) == in_blocks


def test_what_was_counted_of_every_third_line_counts_three_times() -> None:
    counts = count_words(["The dog."], "en")
    counts.merge(count_words(["The dog. The Cat runs.", "A dog."], "en"), 3)
    assert counts.sentences == {1: 4, 2: 3}
    assert counts.first_words == Counter({"The": 4, "A": 3})
    assert counts.later_words == Counter({"Cat": 3})
