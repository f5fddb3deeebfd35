"""Counts the sentences of training lines, and which words begin lines and which stand inside them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformer_mt.data.sentences import MARKS, WIDE_MARKS, first_word, later_words, split_sentences

_KEPT_WORDS = 50_000
_MARK = re.compile(f"[{MARKS}{WIDE_MARKS}]")


@dataclass(frozen=True)
class LineWords:
    """Counts over many lines. Only the most frequent words are kept, so memory does not grow with their number."""

    sentences: Counter[int] = field(default_factory=Counter)
    """How many lines have so many sentences."""
    first_words: Counter[str] = field(default_factory=Counter)
    later_words: Counter[str] = field(default_factory=Counter)

    def merge(self, later: "LineWords", weight: int = 1) -> None:
        """Count what was counted of later lines, each `weight` times."""
        for ours, theirs in zip(self._counters(), later._counters(), strict=True):
            for value, number in theirs.items():
                ours[value] += weight * number
        for words in (self.first_words, self.later_words):
            if len(words) > 2 * _KEPT_WORDS:
                kept = dict(words.most_common(_KEPT_WORDS))
                words.clear()
                words.update(kept)

    @property
    def content(self) -> dict[str, Any]:
        """All counts, for JSON."""
        return {"sentences": list(self.sentences.items()), "first": self.first_words, "later": self.later_words}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "LineWords":
        """Make it of what `content` gave."""
        sentences: Counter[int] = Counter(dict(content["sentences"]))
        return cls(sentences, Counter(content["first"]), Counter(content["later"]))

    def _counters(self) -> tuple[Counter[Any], Counter[Any], Counter[Any]]:
        return self.sentences, self.first_words, self.later_words


def count_words(lines: Iterable[str], language: str) -> LineWords:
    """Count the sentences and words of some lines of a language. A mark before or after a first word makes it empty."""
    found = LineWords()
    for line in lines:
        found.sentences[1 if _has_no_mark_inside(line) else len(split_sentences(line, language))] += 1
        found.first_words[first_word(line)] += 1
        # Most lines of many languages have no capital behind their first letter, and to see that takes less time.
        if not line[1:].islower():
            found.later_words.update(word for word in later_words(line) if word != word.lower())
    return found


def _has_no_mark_inside(line: str) -> bool:
    """Whether no sentence can end before the last character, which is quicker to see than where one does."""
    mark = _MARK.search(line)
    return mark is None or mark.end() == len(line)
