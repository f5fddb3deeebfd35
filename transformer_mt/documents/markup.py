"""Translates documents with tags by any function that translates plain texts and aligns their words."""

from collections.abc import Callable

from transformer_mt.base.languages import has_spaces
from transformer_mt.documents.markup_tokens import Form, tokens_of
from transformer_mt.documents.projection import projected
from transformer_mt.documents.segments import Segment, segments_of

Translate = Callable[[list[str]], list[tuple[str, list[tuple[int, int]]]]]
"""Gives for each text its translation, and pairs of a source word and a target word, both numbered from 0."""


def translate_markup(text: str, form: Form, translate: Translate, languages: tuple[str, str] = ("", "")) -> str:
    """Translate the text of a document, and keep its tags.

    `translate` is called once, with all texts. `languages` are the codes of the source and the target language: if one
    has no spaces between words, the pairs number its characters. Raises TranslationError if XML is not well-formed.
    """
    parts = list(segments_of(tokens_of(text, form), form))
    translations = iter(translate([part.text for part in parts if isinstance(part, Segment)]))
    spaced = has_spaces(languages[0]), has_spaces(languages[1])
    return "".join(part if isinstance(part, str) else projected(part, *next(translations), spaced) for part in parts)
