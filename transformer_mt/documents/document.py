"""Translates a document of any form that the program knows."""

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from transformer_mt.documents.markup import Translate

DocumentForm = Literal["html", "xml", "markdown", "srt", "po"]

ENDINGS: dict[str, DocumentForm] = {f".{form}": form for form in get_args(DocumentForm)}
ENDINGS |= {".htm": "html", ".xhtml": "html", ".md": "markdown", ".pot": "po"}
"""The forms by the endings of names of files, in small letters."""


def translate_document(text: str, form: DocumentForm, translate: "Translate", languages: tuple[str, str]) -> str:
    """Translate the text of a document, and keep all else in it.

    `translate` is called once, with all texts. Raises TranslationError if a document is not of this form, which HTML,
    Markdown and subtitles always are, or if the package polib is missing for po, or markdown-it-py for Markdown.
    """
    # Each form is imported here, so that a command that translates lines loads no parser, and polib need not be there.
    if form == "srt":
        from transformer_mt.documents.subtitles import translate_srt

        return translate_srt(text, translate, languages)
    if form == "po":
        from transformer_mt.documents.gettext import translate_po

        return translate_po(text, translate)
    if form == "markdown":
        from transformer_mt.documents.markdown import translate_markdown

        return translate_markdown(text, translate, languages)
    from transformer_mt.documents.markup import translate_markup

    return translate_markup(text, form, translate, languages)
