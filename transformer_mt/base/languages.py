"""Language codes, the list of languages without spaces, and special pieces of the vocabularies."""

import re

_SHORT_CODES = {
    **dict.fromkeys(("zho", "chi", "cmn", "yue"), "zh"),
    **{"jpn": "ja", "kor": "ko", "tha": "th", "lao": "lo", "khm": "km", "mya": "my", "bur": "my"},
}
_WITHOUT_SPACES = ("zh", "ja", "th", "lo", "km", "my")


def short_code(code: str) -> str:
    """Return the short form of a language code: zh for zh, zh-CN, zho_Hans and cmn."""
    first = re.split("[-_]", code.lower())[0]
    return _SHORT_CODES.get(first, first)


def has_spaces(code: str) -> bool:
    """Whether a language has spaces between words. Korean has them, and Chinese does not."""
    return short_code(code) not in _WITHOUT_SPACES


def split_units(text: str, spaced: bool) -> list[str]:
    """Split a text into words at spaces; or into characters, if the language has no spaces."""
    return text.split() if spaced else list("".join(text.split()))


PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""The ids of the four special pieces of each vocabulary."""

KEEP = tuple(f"<keep{number}>" for number in range(1, 10))
"""The pieces that stand for texts that must not be translated, in vocabularies that have them."""
