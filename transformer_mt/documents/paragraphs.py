"""Translates plain text with broken lines paragraph by paragraph, and breaks the lines of the translation again."""

import logging
import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise, repeat

from transformer_mt.base.languages import has_spaces
from transformer_mt.documents.markup import Translate

_log = logging.getLogger(__name__)
_WIDTHS = range(40, 121)  # columns at which people break lines
_BLANK = r"[^\S\n]"
_LINE = re.compile(  # a signature of mail is one line
    rf"(?!\Z)(?:(?:> ?)*-- \r?\n(?:.*\S.*(?:\n|\Z))*|(?P<quote>(?:{_BLANK}{{0,3}}>)*)(?P<indent>{_BLANK}*)"
    rf"(?P<bullet>(?:[-–—*+•·‣◦▪]|#{{1,6}}){_BLANK}+|-{{1,2}}\w\S*(?:,? --?\w\S*)*{_BLANK}{{2,}})?"
    rf"(?P<number>\(?(?:\d{{1,3}}|[a-zA-Z])[.)]{_BLANK}+)?(?P<text>\S(?:.*\S)?)?(?P<end>{_BLANK}*(?:\n|\Z)))"
)
_SIGN = re.compile("[!-@\\[-`{-~\u2010-\u2bff]")  # digits, punctuation, and what draws boxes
_TABLE = re.compile(r"\S(?:\s{4,}|\t)\S|^[|+].*[|+]$")
_WIDE = "[\u2e80-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"  # without Korean
# What stays together in a line: a word; or a wide character, with the marks that stand before and after it.
_UNIT = re.compile(rf"[（「『《〈【［]*(?:{_WIDE}|(?:(?!{_WIDE})\S)+)[、。，．！？：；）」』》〉】］…ー々]*\s*")  # noqa: RUF001
_ENDS = tuple(".!?:;。！？：；…\"'”’»)」』")  # noqa: RUF001
_Line = re.Match[str]


def translate_paragraphs(text: str, translate: Translate, languages: tuple[str, str] = ("", "")) -> str:
    """Translate plain text with broken lines, and break the translation of each paragraph at the width that it had.

    Blank lines, other quotation marks, marks of lists, another indentation and lines that end early part paragraphs.
    Signatures of mail and lines that are no sentences, such as those of tables and drawings, stay, and so does a
    paragraph whose translation is equal.
    """
    lines, groups = [*_LINE.finditer(text)], list[list[_Line]]()
    width = _width(lines)
    for line in lines:
        if groups and _continues(groups[-1], line, width):
            groups[-1].append(line)
        else:
            groups.append([line])
    left = [line[0] for line in lines if not _is_prose(line) and any(map(str.isalpha, line[0]))]
    if num_left := sum(len(one.splitlines()) for one in left):
        _log.warning("warning: lines that stay, as signatures or what looks like a table or drawing: %d", num_left)
    sources = [_joined(group, has_spaces(languages[0])) for group in groups if _is_prose(group[0])]
    found, written = iter(zip(sources, translate(sources), strict=True)), list[str]()
    for group in groups:
        source, (translation, _) = next(found) if _is_prose(group[0]) else ("", ("", []))
        written += [line[0] for line in group] if source == translation else [_wrapped(group, translation, width)]
    return "".join(written)


def looks_wrapped(lines: Sequence[str]) -> bool:
    """Whether the lines of a text look broken: most are full, and many of these end within a sentence."""
    read = [*_LINE.finditer("\n".join(lines))]
    width, pairs = _width(read), [(one, other) for one, other in pairwise(read) if one["text"] and other["text"]]
    full = [(one["text"], other["text"]) for one, other in pairs if _is_full(one, other, width)]
    torn = [other for text, other in full if not text.endswith(_ENDS) and not other[0].isupper()]
    return len(pairs) >= 8 and 2 * len(full) > len(pairs) < 4 * len(torn)


def _is_prose(line: _Line) -> bool:
    text = line["text"] or ""
    return 2 * len(_SIGN.findall(text)) < len("".join(text.split())) and not _TABLE.search(text)


def _width(lines: Sequence[_Line]) -> int:
    """The columns at which lines are broken, of which a few may have more; 0 if they are not broken."""
    widths = sorted(_columns(one[0].rstrip()) for one, other in pairwise(lines) if _is_prose(one) and _is_prose(other))
    width = widths[-1 - len(widths) // 20] if widths else 0
    return width if width in _WIDTHS else 0


def _is_full(line: _Line, after: _Line, width: int) -> bool:
    """Whether the next word would hardly have had a place in a line."""
    first = _UNIT.match(after["text"])
    return first is not None and width > 0 and _columns(f"{line[0].rstrip()} {first[0].rstrip()}") > 0.9 * width


def _continues(group: Sequence[_Line], line: _Line, width: int) -> bool:
    """Whether a line belongs to the paragraph before it."""
    before = group[-1]
    if not (_is_prose(before) and _is_prose(line)) or line["quote"] != before["quote"] or line["bullet"]:
        return False
    is_full, is_open = _is_full(before, line, width), not before["text"].endswith(_ENDS)
    if line["number"] and not (is_full and is_open and not group[0]["number"]):
        return False
    share = 0.5 if line["text"][0].islower() else 0.75
    is_torn = width > 0 and is_open and _columns(before[0].rstrip()) > share * width
    return (is_full or is_torn) and (len(group) == 1 or line["indent"] == before["indent"])


def _joined(group: Sequence[_Line], is_spaced: bool) -> str:
    """The text of a paragraph in one line. There is no space where wide characters, or word and hyphen, were parted."""
    texts = [(line["number"] or "") * (line is not group[0]) + " ".join(line["text"].split()) for line in group]
    alone = _WIDE if is_spaced else "[\u0e00-\U0010ffff]"
    # The first two are hyphens that a program has put there.
    return re.sub(f"[\u2010\u00ad]\n|(?<=\\w-)\n|(?<={alone})\n(?={alone})", "", "\n".join(texts)).replace("\n", " ")


def _wrapped(group: Sequence[_Line], text: str, width: int) -> str:
    """Break the translation of a paragraph as its source was broken."""
    first, own = group[0], max(_columns(line[0].rstrip()) for line in group)
    then = first["quote"] + first["indent"]
    head = then + (first["bullet"] or "") + (first["number"] or "")
    if len(group) > 1:
        then, width = group[1]["quote"] + group[1]["indent"], own if own < 0.85 * width else width
    else:
        then, width = then + " " * (len(head) - len(then)), max(own, width) if width else 0
    lines = [head]
    for unit in _UNIT.findall(text):
        if width and lines[-1] not in (head, then) and _columns(lines[-1] + unit.rstrip()) > width:
            lines.append(then)
        lines[-1] += unit
    return first["end"].lstrip(" \t").join(line.rstrip() for line in lines) + group[-1]["end"]


def _columns(text: str) -> int:
    """How wide a text is in a terminal, where Chinese characters take two columns."""
    text = text.expandtabs()
    if text.isascii():
        return len(text)
    kinds = map(unicodedata.east_asian_width, text)
    return sum(map({"W": 2, "F": 2}.get, kinds, repeat(1))) - sum(map(bool, map(unicodedata.combining, text)))
