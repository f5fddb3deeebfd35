"""Language codes, the list of languages without spaces, and the ids of the four special pieces of each vocabulary."""

import re
from collections.abc import Iterable, Sequence

_SHORT_CODES = {
    **dict.fromkeys(("zho", "chi", "cmn", "yue"), "zh"),
    **{"jpn": "ja", "kor": "ko", "tha": "th", "lao": "lo", "khm": "km", "mya": "my", "bur": "my"},
}
_WITHOUT_SPACES = ("zh", "ja", "th", "lo", "km", "my")
# Words in the names of columns: parts of a pair, languages, and their codes of three letters.
_COLUMN_WORDS = frozenset(
    "source src target tgt trg reference ref text sentence segment translation original input output language lang "
    "arabic ara bulgarian bul chinese zho chi czech ces cze danish dan dutch nld dut english eng estonian est finnish "
    "fin french fra fre german deu ger greek ell gre hebrew heb hindi hin hungarian hun icelandic isl indonesian ind "
    "italian ita japanese jpn korean kor latvian lav lithuanian lit norwegian nor polish pol portuguese por "
    "romanian ron rum russian rus slovak slk slovenian slv spanish spa swedish swe thai tha turkish tur ukrainian ukr "
    "vietnamese vie".split()
)


def short_code(code: str) -> str:
    """Return the short form of a language code: zh for zh, zh-CN, zho_Hans and cmn."""
    first = re.split("[-_]", code.lower())[0]
    return _SHORT_CODES.get(first, first)


def has_spaces(code: str) -> bool:
    """Whether a language has spaces between words. Korean has them, and Chinese does not."""
    return short_code(code) not in _WITHOUT_SPACES


def name_columns(cells: Sequence[str], codes: Iterable[str]) -> bool:
    """Whether all cells look like names of columns and differ: source_text, German, deu_Latn, or one of the codes."""
    known = _COLUMN_WORDS.union(short_code(code) for code in codes)
    bare = [re.sub("[-_][A-Za-z]{2,4}$", "", cell.strip()).lower() for cell in cells]  # without a region or script
    words = [re.findall(r"[^\W\d_]+", cell) for cell in bare]
    return all(each and known.issuperset(each) for each in words) and len(set(cells)) == len(cells)


def split_units(text: str, spaced: bool) -> list[str]:
    """Split a text into words at spaces; or into characters, if the language has no spaces."""
    return text.split() if spaced else list("".join(text.split()))


PAD, UNK, BOS, EOS = 0, 1, 2, 3
