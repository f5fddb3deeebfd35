"""Changes text as people write it: in capitals, with typos, without a full stop; and text in capitals to usual text.

Symbols of the tokenizer stay.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from random import Random

from transformer_mt.base.languages import KEEP
from transformer_mt.text.sentences import CLOSING, MARKS, WIDE_MARKS
from transformer_mt.text.tokenizer import Tokenizer, user_symbols

Symbols = re.Pattern[str]
"""Matches each symbol that the tokenizer keeps whole, such as a tag, in a group of its own."""

TYPO_SHARE = 0.1  # of the words of a line with typos, as in OpusTrainer
_WHOLE_WORD = re.compile(r"[^\W_](?:\S*[^\W_])?")  # without marks before and after it
_FIRST_LETTER = re.compile(r"(?<!\S)([^\w\s]*)([^\W\d_])")


@lru_cache(maxsize=4)
def symbols_in(tokenizer: Tokenizer) -> Symbols:
    """Return the pattern of the user-defined pieces of a tokenizer. It matches nothing if there are none."""
    found = {symbol.strip("\u2581") for processor in tokenizer.processors for symbol in user_symbols(processor)}
    longest_first = sorted(found - {""}, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")


def modified(
    names: Collection[str], source: str, target: str, symbols: Symbols, random: Random, *, spaced: bool
) -> tuple[str, str]:
    """Return the pair after those changes that `names` has, in the order of training.modifiers.

    The text is a result of `clean`; that of this function need not be. Typos need a source language with spaces between
    words (`spaced`).
    """
    if "protect" in names:
        source, target = with_kept_words(source, target, symbols, random)
    if "typos" in names and spaced:
        source = with_typos(source, symbols, random, TYPO_SHARE)
    if "remove_end_punct" in names:
        shorter = without_end_punct(source, symbols), without_end_punct(target, symbols)
        if shorter[0] != source and shorter[1] != target:
            source, target = shorter
    return source, target


def with_kept_words(source: str, target: str, symbols: Symbols, random: Random) -> tuple[str, str]:
    """Return the pair with pieces of KEEP for up to three words that occur once on each side, and are equal there."""
    source_words, target_words = (
        Counter(word for part in symbols.split(text)[::2] for word in _WHOLE_WORD.findall(part))
        for text in (source, target)
    )
    equal = [word for word, number in source_words.items() if number == target_words[word] == 1]
    pieces = dict(
        zip(random.sample(equal, min(len(equal), random.randint(1, 3))), random.sample(KEEP, 3), strict=False)
    )

    def kept(part: str) -> str:
        return _WHOLE_WORD.sub(lambda found: pieces.get(found[0], found[0]), part)

    return _outside(symbols, source, kept), _outside(symbols, target, kept)


def upper_case(text: str, symbols: Symbols) -> str:
    """Return the text in capital letters, without rules of single languages: i becomes I also in Turkish."""
    return _outside(symbols, text, str.upper)


def title_case(text: str, symbols: Symbols) -> str:
    """Return the text with a capital as the first letter of each word; the other letters stay."""
    return _outside(symbols, text, lambda part: _FIRST_LETTER.sub(lambda found: found[1] + found[2].title(), part))


def without_end_punct(text: str, symbols: Symbols) -> str:
    """Return the text without the full stops, question marks and other ends of sentences at its end.

    If there are none, or if nothing else would remain, the text stays as it is.
    """
    *before, last = symbols.split(text)
    shorter = last.rstrip(MARKS + WIDE_MARKS)
    if shorter == last or not (shorter + "".join(before[::2])).strip():
        return text
    return "".join([*before, shorter]).rstrip()


def with_typos(text: str, symbols: Symbols, random: Random, share: float) -> str:
    """Return the text with typos in about this share of its words, and at least in one.

    A typo swaps two letters, leaves one out, doubles one, replaces one by another letter of the line, or leaves out the
    space after the word. Words with a digit or a symbol have none, and neither have words without letters.
    """
    words = text.split(" ")
    with_letters = [at for at, word in enumerate(words) if any(map(str.isalpha, word))]
    usable = [at for at in with_letters if not any(map(str.isdigit, words[at])) and not symbols.search(words[at])]
    if not usable:
        return text
    chosen = [at for at in usable if random.random() < share] or [random.choice(usable)]
    letters = [character for at in usable for character in words[at] if character.isalpha()]
    gaps = [" "] * (len(words) - 1) + [""]
    for at in chosen:
        if at + 1 in usable and random.random() < 0.2:  # one of the five kinds
            gaps[at] = ""
        else:
            words[at] = _with_typo(words[at], letters, random)
    return "".join([word + gap for word, gap in zip(words, gaps, strict=True)])


def _with_typo(word: str, letters: list[str], random: Random) -> str:
    """Return the word with one of the other four kinds of typos, if it allows the kind, at a random letter."""
    at = random.choice([at for at, character in enumerate(word) if character.isalpha()])
    before, letter, after = word[:at], word[at], word[at + 1 :]
    kinds = [before + 2 * letter + after, before + random.choice(letters) + after]
    if any(map(str.isalpha, before + after)):
        kinds.append(before + after)
    if after[:1].isalpha():
        kinds.append(before + after[0] + letter + after[1:])
    return random.choice([changed for changed in kinds if changed != word])


def _outside(symbols: Symbols, text: str, change: Callable[[str], str]) -> str:
    parts: Iterable[str] = symbols.split(text)
    return "".join([part if at % 2 else change(part) for at, part in enumerate(parts)])


Write = Callable[[str, Symbols], str]
"""Writes a text as another was written: `upper_case` or `title_case`."""

_CASED = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
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
        words = [match for part in symbols_in(self.tokenizer).split(text)[::2] for match in _CASED.findall(part)]
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

        return re.sub(f"{symbols_in(self.tokenizer).pattern}|(?P<word>{_CASED.pattern})", usual, text)

    @cached_property
    def _usual_word(self) -> Callable[[str], str]:
        @lru_cache(2**16)
        def usual(word: str) -> str:
            lower = word.lower()
            ids: list[list[int]] = self.tokenizer.source.encode([lower, capital := lower[0].upper() + lower[1:]])
            return capital if len(ids[1]) < len(ids[0]) else lower

        return usual
