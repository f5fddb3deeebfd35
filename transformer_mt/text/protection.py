"""Hides what must not be translated, such as URLs and placeholders, behind pieces that a model learns to copy."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from operator import add

from transformer_mt.base.doubts import PLACEHOLDERS, placeholders
from transformer_mt.base.errors import TokenizerError
from transformer_mt.base.languages import KEEP, UNK, split_units
from transformer_mt.text.terms import IN_WORD, Terms
from transformer_mt.text.tokenizer import Tokenizer, user_symbols

_KEEP = re.compile("<keep[1-9]>")

# The rest of an address. It has brackets only in pairs, and does not end in a punctuation mark. It ends before wide
# marks, and where Chinese or Japanese follows without a space.
_PART = r"[^\s<>\"()\u3000-\u303f\u3040-\u30ff\u3400-\u9fff\uff00-\uffef]"
_URL = rf"(?:{_PART}|\({_PART}*+\))*(?:(?![.,;:!?\]}}'\u2019]){_PART}|\({_PART}*+\))"
_PROTECTED = (
    _KEEP.pattern,  # so that nothing in a text is taken for a piece
    rf"(?i:(?:https?|ftp)://|www\.){_URL}",
    r"(?<![\w.+-])[\w.+-]++(?<!\.)@[\w-]++(?:\.[\w-]+)+",  # an e-mail address
    *PLACEHOLDERS,
    r"(?<![A-Za-z0-9_\u00c0-\u024f-])[A-Z]{1,6}-\d[A-Za-z0-9_-]*",  # ISO-9001
    r"(?<![A-Za-z0-9_\u00c0-\u024f-])[A-Za-z_]+\d[A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*",  # x86_64, v1.2
    r"(?<![\d.,])\d{5,}(?![.,]?\d)",  # a number whose digits no separators group
)


@dataclass(frozen=True)
class Hidden:
    """A text in which the first pieces of KEEP stand for its protected texts."""

    text: str
    sources: Sequence[str]
    """The hidden texts of the source, in the order of their pieces."""
    targets: Sequence[str]
    """What the translation has in their places: the same texts, or the translations of terms."""

    def restored(self, translation: str) -> str | None:
        """Put the targets into a translation; None unless it has each of their pieces exactly once."""
        if sorted(_KEEP.findall(translation)) != list(KEEP[: len(self.targets)]):
            return None
        return _filled(translation, self.targets)

    def hide(self, translation: str) -> str:
        """Put the pieces for the targets into a translation that has some of them."""
        free = dict(zip(KEEP, self.targets, strict=False))
        longest_first = sorted({*self.targets}, key=len, reverse=True)
        whole = rf"(?<!{IN_WORD})(?:{'|'.join(map(re.escape, longest_first))})(?!{IN_WORD})"

        def piece_of(match: re.Match[str]) -> str:
            piece = next((piece for piece, target in free.items() if target == match[0]), None)
            return match[0] if piece is None else (free.pop(piece) and piece)

        return re.sub(whole, piece_of, translation)


def numbers_after_filling(text: str, originals: Sequence[str], *, spaced: bool) -> list[int]:
    """For each word of `text`, which has pieces of KEEP, the number of this word after `originals` replace them.

    For a language without spaces, these are characters instead of words. Numbers begin with 0.
    """
    if spaced:
        widths = [len(_filled(word, originals).split()) for word in text.split()]
    else:
        widths = []
        for part in re.split(f"({_KEEP.pattern})", text):
            units = split_units(_filled(part, originals), spaced=False)
            widths += [len(units), *[0] * (len(part) - 1)] if _KEEP.fullmatch(part) else [1] * len(units)
    return list(accumulate(widths, initial=0))[:-1]


def _filled(text: str, originals: Sequence[str]) -> str:
    return _KEEP.sub(lambda piece: originals[KEEP.index(piece[0])], text)


@dataclass(frozen=True)
class Protection:
    """Finds what must not be translated, and terms, whose translation is known."""

    tokenizer: Tokenizer
    pattern: str | None = None
    """A regular expression for further texts."""
    terms: Terms | None = None
    only_terms: bool = False
    """Whether all other texts are left to the model."""

    def cut(self, text: str) -> list[str]:
        """Split a text; the results with odd numbers, from 0, are protected. Their join is the text."""
        found, end = list[str](), 0
        for match in self._regex.finditer(text):
            # A tab would split a column of the output, and a line end a line.
            is_in_a_line = "\t" not in match[0] and len(match[0].splitlines()) == 1
            if match[0] not in self._symbols and match[0].strip() and is_in_a_line:
                found += [text[end : match.start()], match[0]]
                end = match.end()
        return [*found, text[end:]]

    def hidden(self, parts: Sequence[str]) -> Hidden | None:
        """Hide the protected texts in the results of `cut`; None if the model has not enough pieces for them."""
        texts, sources = parts[::2], parts[1::2]
        if len(sources) > (len(KEEP) if knows_pieces(self.tokenizer) else 0):
            return None
        pieces = [*KEEP[: len(sources)], ""]
        return Hidden("".join(map(add, texts, pieces)), sources, list(map(self.target, sources)))

    def is_wordless(self, text: str) -> bool:
        """Whether a text has nothing to translate: no letters outside of protected texts, and no terms."""
        if any(map(str.isalpha, text)) and not self._only_protected.fullmatch(text):
            return False  # without `cut`, which takes longer
        parts = self.cut(text)
        has_terms = self.terms is not None and any(map(self.terms.target, parts[1::2]))
        return not has_terms and not any(map(str.isalpha, "".join(parts[::2])))

    def keeps(self, parts: Sequence[str], translation: str) -> bool:
        """Whether a translation has the protected texts in the results of `cut`, and no others."""
        has_all = sorted(map(self.target, parts[1::2])) == sorted(self.cut(translation)[1::2])
        return has_all and placeholders("".join(parts)) == placeholders(translation)

    def target(self, source: str) -> str:
        """The text that the translation has in place of a protected text: the same, or the translation of a term."""
        return (self.terms and self.terms.target(source)) or source

    @cached_property
    def _symbols(self) -> frozenset[str]:
        """The texts that the model knows as pieces, such as <name>."""
        return frozenset(user_symbols(self.tokenizer.source)) - {*KEEP}

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        own = map(re.escape, sorted(self._symbols, key=len, reverse=True))
        others = [*([f"(?:{self.pattern})"] if self.pattern else []), *_PROTECTED]
        if self.only_terms:
            others = [_KEEP.pattern]
        return re.compile("|".join([*own, *others, *([self.terms.pattern] if self.terms else [])]))

    @cached_property
    def _only_protected(self) -> re.Pattern[str]:
        """Matches what `is_wordless` finds, with a few other texts. It never goes back, so it takes linear time."""
        return re.compile(rf"(?:{self._regex.pattern}|[\W\d_])++")


def without_pieces(translation: str) -> str:
    """Remove the pieces of KEEP from the translation of a text that has none."""
    return " ".join(_KEEP.sub(" ", translation).split()) if _KEEP.search(translation) else translation


@lru_cache(maxsize=4)
def knows_pieces(tokenizer: Tokenizer) -> bool:
    """Whether the pieces of KEEP are in both vocabularies of a tokenizer."""
    return all(processor.piece_to_id(piece) != UNK for processor in tokenizer.processors for piece in KEEP)


def check_kept(tokenizer: Tokenizer, share: float) -> None:
    """Raises TokenizerError if training.modifiers.protect is on and a tokenizer lacks the pieces of KEEP."""
    if share and not knows_pieces(tokenizer):
        raise TokenizerError(
            f"training.modifiers.protect={share} needs the pieces <keep1> to <keep9>, but the tokenizer lacks them: "
            "choose another data_dir, so that `prepare` trains a tokenizer that has them, or name the present one in "
            "tokenizer.extend_from"
        )
