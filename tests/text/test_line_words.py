"""The short cut counts as many sentences in training lines as the rules for sentences find."""

import pytest

from transformer_mt.text.sentences import split_sentences
from transformer_mt.text.training_lines import count_sentences

LINES = [
    *("", " ", "One.", "One. Two.", "One! ", "he sees Tom", "The Dog", "the dog.", "  Then He goes.", "A.B. C"),
    *("“Go.” He went.", "Wait… what", "3. Mai", "犬。猫", "犬。", "犬。 ", "no mark", "A"),
    *("the Ⅷ th", "x.", "x . y", "É È", "ß ẞ ß"),
]


@pytest.mark.parametrize("line", LINES)
def test_the_short_cut_finds_what_the_rules_find(line: str) -> None:
    assert count_sentences([line], "de") == [len(split_sentences(line, "de"))]
