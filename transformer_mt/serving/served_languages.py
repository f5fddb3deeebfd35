"""Language codes of a server: their names, the codes that stand for one language, and the language of a text."""

import re
from collections.abc import Iterable, Sequence

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from transformer_mt.base.languages import NAMES, short_code

# The codes of LibreTranslate, and how the same languages may be written besides.
_SPECIAL = {
    "zh-Hans": ("Chinese", "zh zh-hans zh-cn zh-sg"),
    "zh-Hant": ("Chinese (traditional)", "zt zh-hant zh-tw zh-hk"),
    "pt-BR": ("Portuguese (Brazil)", "pb pt-br"),
}
_SPECIAL_OF = {written: code for code, (_, all_written) in _SPECIAL.items() for written in all_written.split()}
_LONGEST = 1000
"""Characters of a text that decide its language: reading them takes about 10 ms."""

_TAG = re.compile("<[^<>]*>")


def served_code(code: str) -> str:
    """Return the code under which a server has a language: zh-Hans for zh, else the code with hyphens."""
    code = code.replace("_", "-")
    return _SPECIAL_OF.get(code.lower(), code)


def name_of(code: str) -> str:
    """Return the English name of a language, or its code if this module does not know the name."""
    name = NAMES.get(short_code(code))
    if code in _SPECIAL:
        return _SPECIAL[code][0]
    return name if name and code.lower() in NAMES else f"{name} ({code})" if name else code


class Identifier:
    """Finds the language of a text among some languages."""

    def __init__(self, codes: Iterable[str]) -> None:
        """Languages that the package py3langid does not know are never found."""
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = set(self._identifier.labels)
        written = {code: {"nb": "no"}.get(short_code(code), short_code(code)) for code in codes}
        self._codes = {label: code for code, label in reversed(written.items()) if label in known}
        if self._codes:
            self._identifier.set_languages(list(self._codes))

    def ranked(self, texts: Sequence[str]) -> list[tuple[str, float]]:
        """Return codes and confidences in percent, the likeliest first; none for a text without letters."""
        text = _TAG.sub(" ", " ".join(texts)[: 4 * _LONGEST])[:_LONGEST]
        if not self._codes or not any(map(str.isalpha, text)):
            return []
        return [(self._codes[label], round(100 * share, 1)) for label, share in self._identifier.rank(text)]
