"""Translates a document of any form that the program knows. Catalogues of gettext (.po) have their code here."""

import codecs
import re
from typing import TYPE_CHECKING, Literal, get_args

from transformer_mt.base.errors import TranslationError

if TYPE_CHECKING:
    from transformer_mt.documents.markup import Translate

DocumentForm = Literal["html", "xml", "markdown", "paragraphs", "srt", "vtt", "po"]
ENDINGS: dict[str, DocumentForm] = {f".{form}": form for form in get_args(DocumentForm) if form != "paragraphs"}
ENDINGS |= {".htm": "html", ".xhtml": "html", ".md": "markdown", ".pot": "po"}
"""The forms by the endings of names of files, in small letters."""

# Where the header of a catalogue, the declaration of XML and the beginning of a page of HTML name the encoding.
_NAMED = {
    "html": re.compile(rb"""\A(.{,1024}?<meta\s[^>]*?charset\s*=\s*["']?)([\w.:-]+)""", re.IGNORECASE | re.DOTALL),
    "po": re.compile(rb'(Content-Type:[^"\n]*?charset=)([\w.:-]+)', re.IGNORECASE),
    "xml": re.compile(rb"""\A(\s*<\?xml[^>]*?\sencoding\s*=\s*["'])([\w.:-]+)"""),
}
# Those that are read, as ISO-8859-15 and KOI8-R; CHARSET stands in templates. Python has others that are no text.
_KNOWN = re.compile("CHARSET|US-ASCII|(?:ISO-8859|KOI8|LATIN|CP|WINDOWS|GB|EUC|BIG5|SHIFT_JIS|JOHAB|TIS)[\\w-]*")


def in_utf8(content: bytes, form: str, errors: str = "strict") -> bytes:
    """Return a document in UTF-8, which was in UTF-16 with a byte order mark, or in the encoding that it names itself.

    It then names UTF-8. Any other content is returned as it is. Raises TranslationError.
    """
    naming = _NAMED.get(form)
    named = naming.search(content) if naming else None
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "UTF-16" if is_utf16 else named[2].decode().upper() if named else ""
    if not is_utf16 and not _KNOWN.fullmatch(encoding):
        return content
    if form == "html":  # as in browsers (https://encoding.spec.whatwg.org/#names-and-labels)
        encoding = "WINDOWS-1252" if encoding in ("US-ASCII", "ISO-8859-1", "LATIN1") else encoding
    try:
        text = content.decode("UTF-8" if encoding in ("CHARSET", "US-ASCII") else encoding, errors)
    except (LookupError, UnicodeDecodeError) as error:
        raise TranslationError(
            f"the document names the encoding {encoding}, but has another ({error}); correct it"
        ) from None
    return naming.sub(rb"\1UTF-8", text.encode(), count=1) if naming else text.encode()


def translate_document(text: str, form: DocumentForm, translate: "Translate", languages: tuple[str, str]) -> str:
    """Translate the text of a document, and keep all else in it.

    `translate` is called once, with all texts. Raises TranslationError if a document is not of this form, which HTML,
    Markdown and subtitles always are, or if the package polib is missing for po, or markdown-it-py for Markdown.
    """
    # Each form is imported here, so that a command that translates lines loads no parser, and polib need not be there.
    if form == "paragraphs":
        from transformer_mt.documents.paragraphs import translate_paragraphs

        return translate_paragraphs(text, translate, languages)
    if form in ("srt", "vtt"):
        from transformer_mt.documents.subtitles import translate_subtitles

        return translate_subtitles(text, translate, languages)
    if form == "po":
        return translate_po(text, translate)
    if form == "markdown":
        from transformer_mt.documents.markdown import translate_markdown

        return translate_markdown(text, translate, languages)
    from transformer_mt.documents.markup import translate_markup

    return translate_markup(text, "html" if form == "html" else "xml", translate, languages)


_BROKEN = re.compile(r'^(?:msg\S+\s*)?"(?:[^"\\\n]|\\.)*$', re.MULTILINE)


def translate_po(text: str, translate: "Translate") -> str:
    """Translate the messages of a .po file that have no translation, and mark them as fuzzy, which means unchecked.

    Each line of a message is translated on its own. All forms of a plural get the translation of `msgid_plural`. The
    header, comments, obsolete entries, and entries with a translation stay. Raises TranslationError, with the line, if
    the text is no catalogue, and without it, if the package polib is missing.
    """
    try:
        import polib
    except ModuleNotFoundError:
        raise TranslationError(
            "polib, which reads .po files, is not installed: `python -m pip install polib`"
        ) from None
    if broken := _BROKEN.search(text):
        line = text.count("\n", 0, broken.start()) + 1
        raise TranslationError(f"line {line}: the text has no closing quotation mark; correct it")
    try:
        catalogue = polib.pofile(text + "\n")  # with a line end, it is never taken for the name of a file
    except OSError as error:
        raise TranslationError(f"this is no catalogue of gettext: {error}") from None
    entries = [e for e in catalogue if not (e.obsolete or e.msgstr or any(e.msgstr_plural.values()))]
    sources = [(entry.msgid_plural or entry.msgid).split("\n") for entry in entries]
    found = iter(translate([line for lines in sources for line in lines if line.strip()]))
    for entry, lines in zip(entries, sources, strict=True):
        translation = "\n".join(next(found)[0] if line.strip() else line for line in lines)
        if entry.msgid_plural:
            entry.msgstr_plural = dict.fromkeys(entry.msgstr_plural, translation)
        else:
            entry.msgstr = translation
        entry.flags += ["fuzzy"] * ("fuzzy" not in entry.flags)
    return str(catalogue)
