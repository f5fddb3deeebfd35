"""Translates catalogues of gettext (.po): fills empty translations, and marks them as fuzzy."""

import re

from transformer_mt.base.errors import TranslationError
from transformer_mt.documents.markup import Translate

try:
    import polib
except ModuleNotFoundError:
    raise TranslationError("polib, which reads .po files, is not installed: `python -m pip install polib`") from None


_BROKEN = re.compile(r'^(?:msg\S+\s*)?"(?:[^"\\\n]|\\.)*$', re.MULTILINE)


def translate_po(text: str, translate: Translate) -> str:
    """Translate the messages of a .po file that have no translation, and mark them as fuzzy, which means unchecked.

    Each line of a message is translated on its own. All forms of a plural get the translation of `msgid_plural`. The
    header, comments, obsolete entries, and entries with a translation stay. Raises TranslationError, with the line, if
    the text is no catalogue.
    """
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
