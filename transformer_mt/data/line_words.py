"""Counts the sentences of training lines, and which words begin lines and which stand inside them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transformer_mt.data.sentences import MARKS, WIDE_MARKS, first_word, later_words, split_sentences

_KEPT_WORDS = 50_000
_MARK = re.compile(f"[{MARKS}{WIDE_MARKS}]")


class LookedAt(NamedTuple):
    """What was found in some lines."""

    sentences: list[int]
    """How many sentences each line has."""
    first_words: list[str]
    """The first word of each line; empty where a mark comes before it or right after it."""
    later_words: list[list[str]]
    """The other words with a capital, of the lines that have any."""


@dataclass(frozen=True)
class LineWords:
    """Counts over many lines. Memory does not grow with their number."""

    sentences: Counter[int] = field(default_factory=Counter)
    """How many lines have so many sentences."""
    first_words: Counter[str] = field(default_factory=Counter)
    later_words: Counter[str] = field(default_factory=Counter)

    def add(self, found: LookedAt) -> None:
        """Count what was found in the next lines."""
        self.sentences.update(found.sentences)
        _count_each(self.first_words, [[word] for word in found.first_words])
        _count_each(self.later_words, found.later_words)

    def merge(self, later: "LineWords", weight: int) -> None:
        """Count what was counted of later lines, each `weight` times."""
        for ours, theirs in zip(self._counters(), later._counters(), strict=True):
            for value, number in theirs.items():
                ours[value] += weight * number
        for words in (self.first_words, self.later_words):
            _forget_the_rarest(words)

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


def look_at(lines: Iterable[str], language: str) -> LookedAt:
    """Count the sentences of these lines of a language, and list their words."""
    found = LookedAt([], [], [])
    for line in lines:
        found.sentences.append(1 if _has_no_mark_inside(line) else len(split_sentences(line, language)))
        found.first_words.append(first_word(line))
        # Most lines of many languages have no capital behind their first letter, and to see that takes less time.
        if not line[1:].islower() and (words := [word for word in later_words(line) if word != word.lower()]):
            found.later_words.append(words)
    return found


def _has_no_mark_inside(line: str) -> bool:
    """Whether no sentence can end before the last character, which is quicker to see than where one does."""
    mark = _MARK.search(line)
    return mark is None or mark.end() == len(line)


def _count_each(words: Counter[str], of_lines: list[list[str]]) -> None:
    """Count the words of lines, as if the rarest were forgotten after any line that makes them too many."""
    all_words = [word for of_line in of_lines for word in of_line]
    if len(words) + len(all_words) <= 2 * _KEPT_WORDS:
        words.update(all_words)
        return
    for of_line in of_lines:
        words.update(of_line)
        _forget_the_rarest(words)


def _forget_the_rarest(words: Counter[str]) -> None:
    """If there are too many different words, keep the most frequent ones."""
    if len(words) > 2 * _KEPT_WORDS:
        kept = dict(words.most_common(_KEPT_WORDS))
        words.clear()
        words.update(kept)
