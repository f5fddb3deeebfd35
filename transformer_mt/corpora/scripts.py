"""Knows the script of a language, and measures how much of a text is in it.

The scripts of characters are those of Unicode (Standard Annex 24). Letters that belong to no script of their own, such
as the Japanese sign for a long vowel, are not judged.
"""

import re
from dataclasses import dataclass
from functools import cache

import regex

from transformer_mt.errors import ConfigError
from transformer_mt.languages import short_code

_OF_CODES = {
    **dict.fromkeys("be bg bul ce cv kk kir ky mk mkd mn myv os ru rus tg tt uk ukr".split(), "Cyrillic"),
    **dict.fromkeys("ar ara ckb fa fas ks pes prs ps sd ug ur urd".split(), "Arabic"),
    **dict.fromkeys("as ben bn".split(), "Bengali"),
    **dict.fromkeys("awa bho hi hin mag mai mar mr ne nep sa".split(), "Devanagari"),
    **dict.fromkeys("he heb yi".split(), "Hebrew"),
    **dict.fromkeys("am amh ti".split(), "Ethiopic"),
    **{"dv": "Thaana", "el": "Greek", "ell": "Greek", "gu": "Gujarati", "hy": "Armenian", "ka": "Georgian"},
    **{"kn": "Kannada", "ml": "Malayalam", "or": "Oriya", "pa": "Gurmukhi", "si": "Sinhala", "ta": "Tamil"},
    **{"te": "Telugu", "bo": "Tibetan", "zh": "Han", "ja": "Han+Hiragana+Katakana", "ko": "Hangul+Han"},
    **{"th": "Thai", "lo": "Lao", "km": "Khmer", "my": "Myanmar", "sr": "Cyrillic+Latin", "uz": "Latin+Cyrillic"},
    **dict.fromkeys(
        "af az bs ca ceb ces cs cy cym da dan de deu en eng eo es est et eu fi fil fin fo fr fra fy ga gd gl ha haw hr "
        "hrv hu hun id ig ind is isl it ita jv la lb lg li lij ln lt lit lv lav mg mi ms mt nb nl nld nn no ny oc pl "
        "pol por pt rm ro ron sco sk slk sl slv sm sn so spa sq st su sv sw swe tk tl tn to tr tur vi vie wo xh yo "
        "zu".split(),
        "Latin",
    ),
}
_OF_SUBTAGS = {"hans": "Han", "hant": "Han", "jpan": "Han+Hiragana+Katakana", "kore": "Hangul+Han"}
_ASCII_LETTER = re.compile("[A-Za-z]")
# No letter comes after it; Unicode reserves what does for other uses.
_AFTER_ALL_LETTERS = 0x40000


def script_of(code: str) -> str | None:
    """Return the script of a language by its code, such as Latin for de; None if it is not known.

    A subtag for the script decides, as in sr-Latn and srp_Cyrl. Several scripts are joined by +.
    """
    for part in re.split("[-_]", code)[1:]:
        if re.fullmatch("[A-Za-z]{4}", part):
            return _OF_SUBTAGS.get(part.lower(), part.title())
    return _OF_CODES.get(short_code(code))


@dataclass(frozen=True)
class Script:
    """One script, or several together, which a text may mix."""

    letters: frozenset[str]
    others: re.Pattern[str]
    """Finds a character that may be a letter of another script: a quick look, which a few other characters pass."""
    is_latin: bool

    @classmethod
    def named(cls, names: str, key: str) -> "Script":
        """Return a script by its name in Unicode, or several by names joined by +.

        Raises ConfigError, which names the key of the configuration, if there is no such script.
        """
        letters = [letter for name in names.split("+") for letter in _letters(name.strip(), key)]
        return cls(frozenset(letters), re.compile(rf"[^\W\d_{_ranges(letters)}]"), "A" in letters)

    def share(self, text: str) -> float:
        """Return the share of the letters of a text that are of this script; 1 if there is no letter to judge."""
        if text.isascii():
            return 1.0 if self.is_latin or not _ASCII_LETTER.search(text) else 0.0
        if not self.others.search(text):
            return 1.0
        return plain_share(self.letters, text)


def plain_share(own_letters: frozenset[str], text: str) -> float:
    """Return the share that `Script.share` returns, without its short cuts."""
    judged = [character for character in text if character.isalpha() and character not in _of_no_script()]
    return sum(character in own_letters for character in judged) / len(judged) if judged else 1.0


@cache
def _all_characters() -> str:
    return "".join(map(chr, [*range(0xD800), *range(0xE000, _AFTER_ALL_LETTERS)]))


@cache
def _of_no_script() -> frozenset[str]:
    pattern = r"[\p{L}&&[\p{Script=Common}\p{Script=Inherited}]]"
    return frozenset(regex.findall(pattern, _all_characters(), regex.V1))


def _letters(name: str, key: str) -> list[str]:
    try:
        if not re.fullmatch("[A-Za-z_]+", name):
            raise ValueError(name)
        pattern = regex.compile(rf"[\p{{L}}&&\p{{Script={name}}}]", regex.V1)
    except (ValueError, regex.error):
        raise ConfigError(
            f"{key}: '{name}' is no script of Unicode; name one such as Latin, Cyrillic, Greek, Arabic, Devanagari, "
            "Han or Hangul"
        ) from None
    found: list[str] = pattern.findall(_all_characters())
    return found


def _ranges(letters: list[str]) -> str:
    """Return letters as the inside of a character class."""
    ranges: list[list[str]] = []
    for letter in sorted(set(letters)):
        if ranges and ord(letter) == ord(ranges[-1][1]) + 1:
            ranges[-1][1] = letter
        else:
            ranges.append([letter, letter])
    return "".join(f"{re.escape(first)}-{re.escape(last)}" for first, last in ranges)
