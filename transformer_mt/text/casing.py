"""Text in capitals, or with a capital on each word, becomes usual text, whose words a model knows better."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from transformer_mt.text.modifiers import Symbols, symbols_in, title_case, upper_case
from transformer_mt.text.sentences import CLOSING, MARKS
from transformer_mt.text.tokenizer import Tokenizer

Write = Callable[[str, Symbols], str]
"""Writes a text as another was written: `upper_case` or `title_case`."""

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
_BEGINS_SENTENCE = re.compile(rf"(?:^|[{MARKS}][{re.escape(CLOSING)}]*\s)\W*$")
_NEAR = 40  # characters before a word that show whether it begins a sentence
_LEAST_LETTERS = 4  # in capitals, so that USA stays
_LEAST_WORDS = 3  # each with a capital


@dataclass(frozen=True)
class Casing:
    """Finds the usual form of words by a tokenizer: with a capital, if it then cuts the word into fewer pieces."""

    tokenizer: Tokenizer

    def usual(self, text: str) -> tuple[str, Write | None]:
        """Return a text in usual letters, and how its translation has to be written; None if the text is usual."""
        if any(word[0].islower() for word in text.split()):  # so it is with most texts
            return text, None
        words = [match for part in symbols_in(self.tokenizer).split(text)[::2] for match in _WORD.findall(part)]
        if not words or not all(word[0].isupper() for word in words):
            return text, None
        if all(word.isupper() for word in words):
            return (self._usual(text), upper_case) if sum(map(len, words)) >= _LEAST_LETTERS else (text, None)
        changed = [word != self._usual_word(word) for word in words[1:]]
        is_title = len(words) >= _LEAST_WORDS and 2 * sum(changed) >= len(changed)  # not in "Guten Morgen Herr Doktor"
        return (self._usual(text), title_case) if is_title else (text, None)

    def written(self, translation: str, write: Write) -> str:
        """Write a translation as `usual` says."""
        return write(translation, symbols_in(self.tokenizer))

    def _usual(self, text: str) -> str:
        def usual(match: re.Match[str]) -> str:
            found = match[0]
            if match["word"] is None:  # a symbol
                return found
            if _BEGINS_SENTENCE.search(text[max(0, match.start() - _NEAR) : match.start()]):
                return found[0] + found[1:].lower()
            return self._usual_word(found)

        return re.sub(f"{symbols_in(self.tokenizer).pattern}|(?P<word>{_WORD.pattern})", usual, text)

    @cached_property
    def _usual_word(self) -> Callable[[str], str]:
        @lru_cache(2**16)
        def usual(word: str) -> str:
            lower = word.lower()
            ids: list[list[int]] = self.tokenizer.source.encode([lower, capital := lower[0].upper() + lower[1:]])
            return capital if len(ids[1]) < len(ids[0]) else lower

        return usual
