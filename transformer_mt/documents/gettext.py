"""Translates catalogues of gettext (.po): fills empty translations, marks them as fuzzy, and keeps all else."""

import re

from transformer_mt.documents import Translate

_QUOTED = r'(?:\s*"(?:[^"\\\n]|\\.)*+"[^\S\n]*+)++\n?'  # a text, on one or more lines
_ENTRY = re.compile(
    rf"(?P<head>(?:^#(?!~).*\n)*+(?:^msgctxt{_QUOTED})?)^msgid(?P<text>{_QUOTED})(?:^msgid_plural(?P<plural>{_QUOTED}))?"
    rf"(?P<translations>(?:^msgstr(?:\[\d+\])?{_QUOTED})+)",
    re.MULTILINE,
)
_TRANSLATION = re.compile(rf"^(msgstr(?:\[\d+\])?)({_QUOTED})", re.MULTILINE)
_AFTER_FLAGS = re.compile(r"^#\||^msgctxt|\Z", re.MULTILINE)  # the order of comments is given by gettext
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def translate_po(text: str, translate: Translate) -> str:
    """Translate the messages of a .po file that have no translation, and mark them as fuzzy, which means unchecked.

    Each line of a message is translated on its own. All forms of a plural get the translation of `msgid_plural`. The
    header, comments, obsolete entries, and entries with a translation stay as they are. A file without entries comes
    back as it is.
    """
    entries = [match for match in _ENTRY.finditer(text) if _is_open(match)]
    sources = [_unquoted(match["plural"] or match["text"]).split("\n") for match in entries]
    found = iter(translate([line for lines in sources for line in lines if line.strip()]))
    pieces, end = list[str](), 0
    for match, lines in zip(entries, sources, strict=True):
        translation = "\n".join(next(found)[0] if line.strip() else line for line in lines)
        pieces += [text[end : match.start()], _filled(match, translation)]
        end = match.end()
    return "".join(pieces) + text[end:]


def _is_open(entry: re.Match[str]) -> bool:
    """Whether an entry is not the header, whose text is empty, and has an empty translation."""
    is_header = not _unquoted(entry["text"])
    return not is_header and any(not _unquoted(text) for _, text in _TRANSLATION.findall(entry["translations"]))


def _filled(entry: re.Match[str], translation: str) -> str:
    """The entry with the translation in place of each empty one, and with the flag fuzzy."""
    head, newline = entry["head"], "\r\n" if "\r\n" in entry[0] else "\n"
    flags = re.search(r"^#,.*", head, re.MULTILINE)
    if flags is None:
        place = _AFTER_FLAGS.search(head)
        start = place.start() if place else 0
        head = f"{head[:start]}#, fuzzy{newline}{head[start:]}"
    elif "fuzzy" not in flags[0]:
        head = f"{head[: flags.start()]}#, fuzzy,{head[flags.start() + 2 :]}"

    def fill(match: re.Match[str]) -> str:
        if _unquoted(match[2]):
            return match[0]
        return f"{match[1]} {_quoted(translation, newline)}{match[2][len(match[2].rstrip()) :]}"

    middle = entry[0][len(entry["head"]) : -len(entry["translations"])]
    return head + middle + _TRANSLATION.sub(fill, entry["translations"])


def _unquoted(text: str) -> str:
    """The text that stands in quotes in a .po file, on one or more lines."""
    inside = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', text))
    return re.sub(r"\\(.)", lambda match: _ESCAPED.get(match[1], match[1]), inside)


def _quoted(text: str, newline: str) -> str:
    """The text in quotes as gettext writes it: on one line, or its lines below an empty text."""
    signs = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\t": r"\t", "\r": r"\r"})
    lines = [f'"{line.translate(signs)}"' for line in text.splitlines(keepends=True)]
    return lines[0] if len(lines) == 1 else newline.join(['""', *lines])
