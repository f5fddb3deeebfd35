"""Translates a document of any form that the program knows."""

from typing import Literal, get_args

from transformer_mt.documents.markup import Translate, translate_markup
from transformer_mt.documents.subtitles import translate_srt

DocumentForm = Literal["html", "xml", "markdown", "srt", "po"]

ENDINGS: dict[str, DocumentForm] = {f".{form}": form for form in get_args(DocumentForm)}
ENDINGS |= {".htm": "html", ".xhtml": "html", ".md": "markdown", ".pot": "po"}
"""The forms by the endings of names of files, in small letters."""


def translate_document(text: str, form: DocumentForm, translate: Translate, languages: tuple[str, str]) -> str:
    """Translate the text of a document, and keep all else in it.

    `translate` is called once, with all texts. Raises TranslationError if a document is not of this form, which HTML,
    Markdown and subtitles always are, or if the package polib is missing for po, or markdown-it-py for Markdown.
    """
    if form == "srt":
        return translate_srt(text, translate, languages)
    if form == "po":
        from transformer_mt.documents.gettext import translate_po  # here, because polib need not be installed

        return translate_po(text, translate)
    if form == "markdown":
        from transformer_mt.documents.markdown import translate_markdown  # here, because its parser need not be, either

        return translate_markdown(text, translate, languages)
    return translate_markup(text, form, translate, languages)
