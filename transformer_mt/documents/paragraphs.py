"""Translates plain text whose lines are broken at a width, paragraph by paragraph, and breaks the lines again."""

import logging
import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from transformer_mt.base.languages import has_spaces
from transformer_mt.base.wording import counted
from transformer_mt.documents.markup import Translate

_log = logging.getLogger(__name__)
_WIDTHS = range(40, 121)  # columns at which people break lines
_QUOTE_AND_INDENT = r"((?:\s{0,3}>)*)(\s*)"
_BULLET = r"[-–—*+•·‣◦▪]\s+|#{1,6}\s+|--?\w\S*(?:,? --?\w\S*)*\s{2,}"
_NUMBER = r"\(?(?:\d{1,3}|[a-zA-Z])[.)]\s+"
_LINE = re.compile(rf"{_QUOTE_AND_INDENT}({_BULLET})?({_NUMBER})?(\S(?:.*\S)?)?(\s*)", re.DOTALL)
_TABLE = re.compile(r"\S(?:\s{4,}|\t)\S|[|+].*[|+]$")
_SIGN = re.compile("[!-@\\[-`{-~\u2010-\u2bff]")  # digits, punctuation, and what draws boxes
_WIDE = "[\u2e80-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"  # without Korean
# What stays together in a line: a word; or a wide character, with the marks that stand before and after it.
_UNIT = re.compile(rf"[（「『《〈【［]*(?:{_WIDE}|(?:(?!{_WIDE})\S)+)[、。，．！？：；）」』》〉】］…ー々]*\s*")  # noqa: RUF001
_ENDS = tuple(".!?:;。！？：；…\"'”’»)」』")  # noqa: RUF001


class _Line:
    def __init__(self, text: str) -> None:
        found = _LINE.fullmatch(text)
        assert found is not None
        self.raw = text
        self.quote, self.indent, self.bullet, self.number, self.text, self.end = (part or "" for part in found.groups())
        self.width = _columns(text.rstrip())
        num_signs, num_all = len(_SIGN.findall(self.text)), len("".join(self.text.split()))
        self.is_prose = 2 * num_signs < num_all and not _TABLE.search(self.text)

    @property
    def head(self) -> str:
        return self.raw[: len(self.raw) - len(self.text + self.end)]


def translate_paragraphs(text: str, translate: Translate, languages: tuple[str, str] = ("", "")) -> str:
    """Translate plain text with broken lines, and break the translation of each paragraph at the width that it had.

    Blank lines, other quotation marks, marks of lists, another indentation and lines that end early part paragraphs.
    Signatures of mail and lines that are no sentences, such as those of tables and drawings, stay, and so does a
    paragraph whose translation is equal.
    """
    lines = [_Line(line) for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
    width, groups, is_signature = _width(lines), list[list[_Line]](), False
    for line in lines:
        is_signature = bool(line.raw.strip()) and (is_signature or (line.text, line.end[:1]) == ("--", " "))
        line.is_prose = line.is_prose and not is_signature
        if groups and _continues(groups[-1], line, width):
            groups[-1].append(line)
        else:
            groups.append([line])
    left = [
        number for number, line in enumerate(lines, 1) if not line.is_prose and re.search(r"[^\W\d_]{2}", line.text)
    ]
    if left:
        _log.warning(
            "warning: %s (the first is line %d) stay as they are, because they are a signature, or look like a table or "
            "a drawing",
            *(counted(len(left), "line"), left[0]),
        )
    spaced = has_spaces(languages[0])
    sources = [_joined(group, spaced) for group in groups if group[0].is_prose]
    found, written = iter(zip(sources, translate(sources), strict=True)), list[str]()
    for group in groups:
        source, (translation, _) = next(found) if group[0].is_prose else ("", ("", []))
        written += [line.raw for line in group] if source == translation else [_wrapped(group, translation, width)]
    return "".join(written)


def looks_wrapped(lines: Sequence[str]) -> bool:
    """Whether lines of text look as if a program had broken them: most are full, and many break a sentence."""
    read = [_Line(line) for line in lines]
    width, pairs = _width(read), [(one, other) for one, other in pairwise(read) if one.text and other.text]
    full = [(one, other) for one, other in pairs if _is_full(one, other, width)]
    torn = [other for one, other in full if not one.text.endswith(_ENDS) and not other.text[0].isupper()]
    return len(pairs) >= 8 and 2 * len(full) > len(pairs) < 4 * len(torn)


def _width(lines: Sequence[_Line]) -> int:
    """The columns at which lines are broken; 0 if they are not. A few lines may be longer."""
    widths = sorted(one.width for one, other in pairwise(lines) if one.is_prose and other.is_prose)
    width = widths[-1 - len(widths) // 20] if widths else 0
    return width if width in _WIDTHS else 0


def _is_full(line: _Line, after: _Line, width: int) -> bool:
    """Whether the next word would hardly have had a place in a line."""
    unit = _UNIT.match(after.text)
    return bool(width) and line.width + 1 + _columns(unit[0].rstrip() if unit else "") > 0.9 * width


def _continues(group: Sequence[_Line], line: _Line, width: int) -> bool:
    """Whether a line belongs to the paragraph before it."""
    before = group[-1]
    if not (before.is_prose and line.is_prose) or line.quote != before.quote or line.bullet:
        return False
    is_full, is_open = _is_full(before, line, width), not before.text.endswith(_ENDS)
    if line.number and not (is_full and is_open and not group[0].number):
        return False
    is_torn = is_open and before.width > width * (0.5 if line.text[0].islower() else 0.75)
    return (is_full or (bool(width) and is_torn)) and (len(group) == 1 or line.indent == before.indent)


def _joined(group: Sequence[_Line], spaced: bool) -> str:
    """The text of a paragraph in one line. A language without spaces gets none where a line ended."""

    def is_alone(character: str) -> bool:
        return re.match(_WIDE, character) is not None or (not spaced and character > "\u0e00")

    text = ""
    for line in group:
        more = " ".join(line.text.split())
        if line is not group[0]:
            more = line.number + more
        if text.endswith(("\u2010", "\u00ad")):  # hyphens that a program has put there
            text = text[:-1] + more
        elif not text or re.search(r"\w-$", text) or (is_alone(text[-1]) and is_alone(more[0])):
            text += more
        else:
            text += f" {more}"
    return text


def _wrapped(group: Sequence[_Line], text: str, width: int) -> str:
    """Break the translation of a paragraph as its source was broken."""
    first, last = group[0], group[-1]
    own = max(line.width for line in group)
    if len(group) == 1:
        then = first.quote + first.indent + " " * _columns(first.bullet + first.number)
        width = max(own, width) if width else len(text) * 2 + own
    else:
        then = group[1].quote + group[1].indent
        width = own if own < 0.85 * width else width
    lines = [first.head]
    for unit in _UNIT.findall(text):
        if lines[-1] not in (first.head, then) and _columns(lines[-1] + unit.rstrip()) > width:
            lines.append(then)
        lines[-1] += unit
    return first.end.lstrip(" \t").join(line.rstrip() for line in lines) + last.end


def _columns(text: str) -> int:
    """How wide a text is in a terminal, where Chinese characters take two columns."""
    if text.isascii():
        return len(text.expandtabs())
    kinds = (
        unicodedata.east_asian_width(character)
        for character in text.expandtabs()
        if not unicodedata.combining(character)
    )
    return sum(2 if kind in "WF" else 1 for kind in kinds)
