"""Finds the terms of a list in a text, and says how each of them must be translated."""

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from transformer_mt.base.errors import TranslationError
from transformer_mt.base.wording import cut
from transformer_mt.storage.files import read_regular
from transformer_mt.text.tokenizer import clean

NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
"""Characters of scripts without spaces between words, for a regular expression: Thai, Khmer, Japanese, Chinese, …"""
# The second class has marks, such as vowel signs, which are not in \w.
IN_WORD = rf"(?:[^\W{NO_SPACES}]|[\u0300-\u036f\u0900-\u0963\u0966-\u0dff])"
"""A regular expression for a letter, a mark or a digit of the other scripts: where one follows, the word goes on."""
_OPENING = "[\"'(\\[\u00bf\u00a1\u2018-\u201f\u00ab\u00bb]"
_AT_THE_BEGINNING = rf"(?:\A|(?<=\A{_OPENING})|(?<=[.!?…:]\s)|(?<=[.!?…:]\s{_OPENING}))"


@dataclass(frozen=True)
class Terms:
    """Source terms, and for each the target terms of which its translation must have one.

    A term is one or more whole words. It matches as it is written, in capitals, and with a capital first letter at the
    beginning of a sentence. Matches do not overlap: of those that begin at the same place, the longest counts.
    Raises TranslationError if a term is blank or has no translation.
    """

    targets: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        for source, targets in self.targets.items():
            _check("terms", source, targets)

    @classmethod
    def load(cls, path: Path) -> "Terms":
        """Read a file of lines such as `house<tab>Haus|Hauses`; blank lines and comments (#) do not count.

        It is in UTF-8, or in UTF-16 with a byte order mark.

        If a source term comes twice, either translation suffices. Raises TranslationError for a damaged line.
        """
        found: dict[str, list[str]] = {}
        try:
            content = read_regular(path)
            is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # "Unicode Text" of spreadsheets
            lines = content.decode("utf-16" if is_utf16 else "utf-8-sig").replace("\r\n", "\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise TranslationError(f"{path}: cannot be read ({error}): name a text file in UTF-8") from None
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            source, *cells = line.split("\t")
            targets = cells[0].split("|") if len(cells) == 1 else []
            _check(f"{path}:{number}", source, targets, line)
            found.setdefault(source, []).extend(targets)
        return cls(found)

    def required(self, text: str) -> list[list[str]]:
        """Return for each match in a text, in order, the target terms of which the translation must have one.

        A target term whose first word has no capitals may also begin with a capital, as at the beginning of a sentence.
        """
        found = [self._forms[match[0]] for match in re.finditer(self.pattern, clean(text))]
        return [[*terms, *(_capitalised(term) for term in terms if term.split()[0].islower())] for terms in found]

    def target(self, match: str) -> str | None:
        """Return the first target term for a text that `pattern` found; None for another text."""
        return next(iter(self._forms.get(clean(match), [])), None)

    @cached_property
    def pattern(self) -> str:
        """A regular expression, without groups, for the source terms."""
        exact = {*self._written, *map(str.upper, self._written)}
        forms = sorted(self._forms, key=len, reverse=True)
        texts = [re.escape(form).replace(r"\ ", r"\s+") for form in forms]
        places = ["" if form in exact else _AT_THE_BEGINNING for form in forms]
        either = "|".join(place + text for place, text in zip(places, texts, strict=True))
        return rf"(?<!{IN_WORD})(?:{either or '(?!)'})(?!{IN_WORD})"

    @cached_property
    def _written(self) -> dict[str, list[str]]:
        return {clean(source): [clean(target) for target in targets] for source, targets in self.targets.items()}

    @cached_property
    def _forms(self) -> dict[str, list[str]]:
        """The target terms for each form of a source term. A form that is itself in the list is that term."""
        with_capital = {_capitalised(source): targets for source, targets in self._written.items()}
        return with_capital | {source.upper(): targets for source, targets in self._written.items()} | self._written


def _capitalised(term: str) -> str:
    return term[0].upper() + term[1:]


def _check(place: str, source: str, targets: Sequence[str], line: str = "") -> None:
    """Raises TranslationError unless a source term and all its target terms have letters or signs."""
    if isinstance(targets, str) or not targets or not all(clean(text) for text in (source, *targets)):
        found = cut(line or f"{source!r}: {targets!r}")
        raise TranslationError(
            f"{place}: is no term with its translation: write the source term, one tab and the target term, or several "
            f"with | between them. Found: {found}"
        )
