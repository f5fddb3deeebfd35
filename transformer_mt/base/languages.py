"""Language codes and names, the list of languages without spaces, and special pieces of the vocabularies."""

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

NAMES = dict(
    pair.split(":")
    for pair in """af:Afrikaans am:Amharic ar:Arabic az:Azerbaijani be:Belarusian bg:Bulgarian bn:Bengali br:Breton
    bs:Bosnian ca:Catalan cs:Czech cy:Welsh da:Danish de:German el:Greek en:English eo:Esperanto es:Spanish et:Estonian
    eu:Basque fa:Persian fi:Finnish fo:Faroese fr:French fy:Frisian ga:Irish gd:Gaelic gl:Galician gu:Gujarati ha:Hausa
    he:Hebrew hi:Hindi hr:Croatian hu:Hungarian hy:Armenian id:Indonesian ig:Igbo is:Icelandic it:Italian ja:Japanese
    ka:Georgian kk:Kazakh km:Khmer kn:Kannada ko:Korean ky:Kyrgyz la:Latin lb:Luxembourgish lo:Lao lt:Lithuanian
    lv:Latvian mg:Malagasy mk:Macedonian ml:Malayalam mn:Mongolian mr:Marathi ms:Malay mt:Maltese my:Burmese
    nb:Norwegian ne:Nepali nl:Dutch nn:Nynorsk no:Norwegian oc:Occitan or:Odia pa:Punjabi pl:Polish ps:Pashto
    pt:Portuguese ro:Romanian ru:Russian rw:Kinyarwanda sd:Sindhi se:Sami si:Sinhala sk:Slovak sl:Slovenian so:Somali
    sq:Albanian sr:Serbian sv:Swedish sw:Swahili ta:Tamil te:Telugu tg:Tajik th:Thai ti:Tigrinya tk:Turkmen tl:Tagalog
    tr:Turkish tt:Tatar ug:Uyghur uk:Ukrainian ur:Urdu uz:Uzbek vi:Vietnamese xh:Xhosa yi:Yiddish yo:Yoruba
    zh:Chinese zu:Zulu""".split()
)
"""By the short codes of `short_code`."""
