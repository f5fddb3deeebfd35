"""Knows the script of a language, and measures how much of a text is in it.

The scripts of characters are those of Unicode (Standard Annex 24). Letters that belong to no script of their own, such
as the Japanese sign for a long vowel, are not judged.
"""

import re
from dataclasses import dataclass

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

    letters: regex.Pattern[str]
    """Finds a letter of the script."""
    others: regex.Pattern[str]
    """Finds a letter of another script."""
    is_latin: bool

    @classmethod
    def named(cls, names: str, key: str) -> "Script":
        """Return a script by its name in Unicode, or several by names joined by +.

        Raises ConfigError, which names the key of the configuration, if there is no such script.
        """
        own = "".join(rf"\p{{Script={_checked(name.strip(), key)}}}" for name in names.split("+"))
        letters = regex.compile(rf"[\p{{L}}&&[{own}]]", regex.V1)
        others = regex.compile(rf"[\p{{L}}--[{own}\p{{Script=Common}}\p{{Script=Inherited}}]]", regex.V1)
        return cls(letters, others, letters.match("A") is not None)

    def share(self, text: str) -> float:
        """Return the share of the letters of a text that are of this script; 1 if there is no letter to judge."""
        if text.isascii():
            return 1.0 if self.is_latin or not _ASCII_LETTER.search(text) else 0.0
        num_others = len(self.others.findall(text))
        if not num_others:
            return 1.0
        num_own = len(self.letters.findall(text))
        return num_own / (num_own + num_others)


def _checked(name: str, key: str) -> str:
    """Return the name of a script. Raises ConfigError if there is none with this name."""
    try:
        if not re.fullmatch("[A-Za-z_]+", name):
            raise ValueError(name)
        regex.compile(rf"\p{{Script={name}}}")
    except (ValueError, regex.error):
        raise ConfigError(
            f"{key}: '{name}' is no script of Unicode; name one such as Latin, Cyrillic, Greek, Arabic, Devanagari, "
            "Han or Hangul"
        ) from None
    return name
