"""Translates documents with tags by any function that translates plain texts and aligns their words."""

import html
import re
from collections.abc import Callable
from itertools import compress, islice

from transformer_mt.base.languages import has_spaces
from transformer_mt.documents.markup_tokens import Form, Token, tokens_of
from transformer_mt.documents.projection import escaped, projected
from transformer_mt.documents.segments import Segment, segments_of

Translate = Callable[[list[str]], list[tuple[str, list[tuple[int, int]]]]]
"""Gives for each text its translation, and pairs of a source word and a target word, both numbered from 0."""

# HTML Living Standard, section 3.2.6.3: translatable attributes, those that always are plain text; and that of ARIA.
_TRANSLATABLE = frozenset("abbr alt aria-label label placeholder title".split())
_NAME_AND_VALUE = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'<>]+))?""")


def translate_markup(text: str, form: Form, translate: Translate, languages: tuple[str, str] = ("", "")) -> str:
    """Translate the text of a document, and keep its tags, but in HTML translate attributes such as `alt`.

    `translate` is called once, with all texts. `languages` are the codes of the source and the target language: if one
    has no spaces between words, the pairs number its characters. Raises TranslationError if XML is not well-formed.
    """
    tokens = tokens_of(text, form)
    attributes = [_translatable(token) for token in tokens]
    texts = [part.text for part in segments_of(tokens, form) if isinstance(part, Segment)]
    texts += [" ".join(html.unescape(_value(one)).split()) for of_tag in attributes for one in of_tag]
    translations = [*translate(texts)]
    for token, of_tag in zip(reversed(tokens), reversed(attributes), strict=True):
        for one in reversed(of_tag):
            token.raw = _with_value(token.raw, one, translations.pop()[0])
    spaced, of_segments = (has_spaces(languages[0]), has_spaces(languages[1])), iter(translations)
    parts = segments_of(tokens, form)  # again, with the new attributes
    return "".join(part if isinstance(part, str) else projected(part, *next(of_segments), spaced) for part in parts)


def _translatable(token: Token) -> list[re.Match[str]]:
    """Find the attributes of a tag that are translated; none if the parser has read its attributes in another way."""
    found = [*islice(_NAME_AND_VALUE.finditer(token.raw), 1, 1 + len(token.attributes))]
    read = [(one[1].lower(), one[2] and html.unescape(_value(one))) for one in found]
    if read != token.attributes:
        return []
    are_text = [name in _TRANSLATABLE and any(map(str.isalpha, value or "")) for name, value in read]
    return [*compress(found, are_text)]


def _value(attribute: re.Match[str]) -> str:
    return attribute[2][1:-1] if attribute[2][0] in "\"'" else attribute[2]


def _with_value(tag: str, attribute: re.Match[str], value: str) -> str:
    quote = attribute[2][0] if attribute[2][0] in "\"'" else '"'
    written = escaped(value.strip()).replace(quote, f"&#{ord(quote)};")
    return f"{tag[: attribute.start(2)]}{quote}{written}{quote}{tag[attribute.end(2) :]}"
