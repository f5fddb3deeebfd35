"""Recognises what text is like by its letters, words and signs: script, language, tokenised, in pieces, column names.

Unicode Standard Annex 24 defines the script of each character. Letters that several scripts share, such as the Japanese
sign for a long vowel, do not count.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import regex
import yaml

from transformer_mt.base.languages import short_code

# SentencePiece marks the beginning of a word; subword-nmt ends a piece inside a word with @@. @@ alone is text.
PIECE = re.compile("\u2581|\\S@@(?=\\s|$)")
# Only a tokeniser writes a space before . or , (French has spaces before ? ! : ;). Moses writes &apos; &quot; and @-@.
TOKENISED = re.compile(r"\s[.,](?=\s|$)|&apos;|&quot;|\s@-@\s")
TOKENISED_SHARE = 0.1
"""A text with a larger share of such lines is tokenised."""
ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z]{2,8});")
"""An HTML entity, such as &amp; or &#39;"""


class _Facts(NamedTuple):
    """The content of languages.yaml."""

    scripts: dict[str, str]
    """The script of a language, by its short code. Several that a text may mix are joined by +."""
    words: dict[str, frozenset[str]]
    """The most frequent words of a language, by its short code."""
    columns: frozenset[str]
    """Words in the names of columns."""


@cache
def _facts() -> _Facts:
    data = yaml.safe_load(Path(__file__).with_name("languages.yaml").read_text(encoding="utf-8"))
    scripts = {code: script for script, codes in data["scripts"].items() for code in codes.split()}
    words = {code: frozenset(words.split()) for codes, words in data["words"].items() for code in codes.split()}
    return _Facts(scripts, words, frozenset(data["columns"].split()))


_SCRIPTS_OF_SUBTAGS = {"hans": "Han", "hant": "Han", "jpan": "Han+Hiragana+Katakana", "kore": "Hangul+Han"}


def script_of(code: str) -> str | None:
    """Return the script of a language by its code, such as Latin for de; None if it is unknown.

    A script in the code takes precedence, as in sr-Latn and srp_Cyrl. Several scripts are joined by +.
    """
    for part in re.split("[-_]", code)[1:]:
        if re.fullmatch("[A-Za-z]{4}", part):
            return _SCRIPTS_OF_SUBTAGS.get(part.lower(), part.title())
    return _facts().scripts.get(short_code(code))


def letters_by_script(characters: Mapping[str, int]) -> Counter[str]:
    """Count the letters of each script, the most frequent script first, from the number of times each character occurs.

    Scripts that no language in languages.yaml has are counted together, as "other".
    """
    letters = "".join(regex.findall(r"[\p{L}--[\p{Script=Common}\p{Script=Inherited}]]", "".join(characters), regex.V1))
    counts = Counter({"other": sum(characters[letter] for letter in letters)})
    for name in sorted({name for names in _facts().scripts.values() for name in names.split("+")}):
        counts[name] = sum(characters[letter] for letter in regex.findall(rf"\p{{Script={name}}}", letters))
        counts["other"] -= counts[name]
    return Counter({name: number for name, number in counts.most_common() if number})


_FEWEST = 4  # words that only one of two languages has; with fewer, no text can be assigned to one of them


def telling_words(language: str, other: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return frequent words of each of two languages that are not among those of the other, in small letters.

    In Chinese and Japanese they are characters. Both sets are empty if the words of a language are not known, or if too
    few of them differ.
    """
    words, others = (_facts().words.get(short_code(code), frozenset[str]()) for code in (language, other))
    own, of_other = words - others, others - words
    return (own, of_other) if min(len(own), len(of_other)) >= _FEWEST else (frozenset(), frozenset())


def name_columns(cells: Sequence[str], codes: Iterable[str]) -> bool:
    """Whether all cells look like names of columns and differ: source_text, German, deu_Latn, or one of the codes."""
    known = _facts().columns.union(short_code(code) for code in codes)
    bare = [re.sub("[-_][A-Za-z]{2,4}$", "", cell.strip()).lower() for cell in cells]  # without a region or script
    words = [re.findall(r"[^\W\d_]+", cell) for cell in bare]
    return all(each and known.issuperset(each) for each in words) and len(set(cells)) == len(cells)
