"""Translates Markdown: the text of headings, paragraphs and cells, and the descriptions of images; all else stays.

The parser markdown-it-py gives the lines of each block, and the text in it without the marks before its lines. Only
this text is replaced, so everything else stays byte for byte.
"""

import logging
import re
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

from transformer_mt.base.errors import TranslationError
from transformer_mt.base.languages import has_spaces
from transformer_mt.base.wording import counted
from transformer_mt.documents.markup import Translate
from transformer_mt.documents.markup_tokens import Token, html_tokens, with_untouched
from transformer_mt.documents.projection import projected
from transformer_mt.documents.segments import Segment, segments_of

try:
    from markdown_it import MarkdownIt
    from markdown_it.parser_inline import RuleFuncInlineType
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token as Parsed
except ModuleNotFoundError:
    raise TranslationError(
        "markdown-it-py, which reads Markdown, is not installed: `python -m pip install markdown-it-py`"
    ) from None

_log = logging.getLogger(__name__)
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)
# Forms of GitHub that CommonMark lacks: a footnote; at the beginning of a text, a box to tick or the kind of a note.
_KEPT = re.compile(r"\[\^[^\]\s]+\]:?|\A\[[ xX]\]\s|\A\[!\w+\]\S*\s*")
_CONTAINERS = re.compile(r"(?:\s*(?:>|[-+*](?=\s)|\d{1,9}[.)](?=\s)))*\s*")  # may stand before the first cell of a row
_CLOSING = re.compile(r"(?<=\s)#+$")  # as in `## Heading ##`
# Signs that may be markup. An address without < and > stays as it is, because there a backslash would be part of it.
_SIGNS = re.compile(
    r"(https?://\S+)|[*`~\[\]]|(?<![^\W_])_|_(?![^\W_])|\\(?=[!-/:-@\[-`{-~]|\Z)|<(?=[a-zA-Z/!?]|\Z)|&(?=#?\w+;|\Z)"
)
# What stands before a sign at the beginning of a line that may begin a list, a heading or a quotation.
_BEGINNING = re.compile(
    r"^(\s*(?:\d{1,9}(?=[.)](?:\s|$))|(?=[-+](?:\s|$)|-[-\s]*$|=+\s*$|#{1,6}(?:\s|$)|>)))", re.MULTILINE
)
# Documents with one text, in which a translation is tried out. _ROW: the first cell of a row that begins without |.
_PLAIN, _ATX, _SETEXT, _CELL, _ROW = "{}", "# {}", "{}\n-", "|{}|\n|-|", "a|b\n-|-\n{}|b"
_EMPHASIS = ("em", "strong", "s")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]:")


def _begins_footnote(state: StateBlock, line: int, last: int, silent: bool) -> bool:
    """Whether a line ends the paragraph before it, because it begins the text of a footnote."""
    return silent and _FOOTNOTE.match(state.src, state.bMarks[line] + state.tShift[line]) is not None


def _kept(state: StateInline, silent: bool) -> bool:
    found = None if silent else _KEPT.match(state.src, state.pos, state.posMax)
    if found:
        state.push("kept", "wbr", 0)  # like a <wbr>, it does not separate words
        state.pos = found.end()
    return found is not None


def _with_end(rule: RuleFuncInlineType, state: StateInline, silent: bool) -> bool:
    before = len(state.tokens)
    is_found = rule(state, silent)
    if state.tokens[before:] and state.tokens[-1].markup == "autolink":  # an address between < and >: one token
        del state.tokens[-2:]
        state.tokens[-1].nesting = 0
    if state.tokens[before:]:
        state.tokens[-1].meta["end"] = state.pos
    return is_found


def _parser() -> MarkdownIt:
    """CommonMark with GitHub's tables and ~~. The last token of each rule has its end in the text as meta["end"]."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    ends = ["paragraph", "reference", "blockquote"]
    parser.block.ruler.before("reference", "footnote", _begins_footnote, {"alt": ends})
    rules = parser.inline.ruler
    rules.before("link", "kept", _kept)
    for name, rule in zip(rules.get_active_rules(), rules.getRules(""), strict=True):
        rules.at(name, partial(_with_end, rule))
    return parser


_PARSER = _parser()


@dataclass
class _Text:
    """A text of a document, or the description of an image in such a text."""

    content: str
    frame: str
    lines: list[tuple[int, int]]
    """The place of each line in the document; for the description of an image, those of the text around it."""
    image: Token | None = None
    tokens: list[Token] = field(default_factory=list)
    links: list[tuple[Token, str]] = field(default_factory=list)
    """The end of each link, and the source of its text."""


def translate_markdown(text: str, translate: Translate, languages: tuple[str, str] = ("", "")) -> str:
    """Translate the text of a Markdown file; emphasis, links and such move as `translate_markup` moves tags.

    `translate` is called once, with all texts. A text stays as it is if its markup has no place in the translation, as
    an emphasis without a word; a warning of `logging` then names its line.
    """
    front = _FRONT_MATTER.match(text)
    begin = front.end() if front else 0
    document = _Document(text[begin:])
    translated = document.translated(translate, languages)
    if lines := sorted(
        {bisect(document.starts, one.lines[0][0]) + text.count("\n", 0, begin) for one in document.left}
    ):
        _log.warning(
            "warning: %s in the source language, because the translation is empty, or the markup has no place in it; "
            "lines: %s",
            "1 text stays" if len(document.left) == 1 else f"{len(document.left)} texts stay",
            ", ".join(map(str, lines[:20])) + ", …" * (len(lines) > 20),
        )
    if document.num_indented:
        _log.warning(
            "warning: %s, indented by four spaces, stay as they are, because Markdown takes them for code; if they are "
            "text, remove the indentation, or use --format paragraphs",
            counted(document.num_indented, "line"),
        )
    return text[:begin] + translated


class _Document:
    def __init__(self, text: str) -> None:
        self.text, self.env, self.texts = text, dict[str, Any](), list[_Text]()
        self.starts = [0, *(end.end() for end in re.finditer(r"\r\n?|\n", text)), len(text)]
        self.cell_ends = dict[int, int]()  # in each line, where the last cell that was found ends
        self.left = list[_Text]()  # those that stay in the source language
        parsed = _PARSER.parse(text, self.env)
        self.num_indented = sum(token.content.count("\n") for token in parsed if token.type == "code_block")
        for opening, token in pairwise(parsed):
            if token.type == "inline" and token.content:
                frame = {"t": _CELL, "#": _ATX, "-": _SETEXT}.get((opening.markup or opening.tag)[:1], _PLAIN)
                if lines := self._lines(token, frame):
                    if frame == _CELL and "|" not in self.text[self.starts[(token.map or [0])[0]] : lines[0][0]]:
                        frame = _ROW
                    self._add(_Text(token.content, frame, lines), token.children or [])

    def _lines(self, token: Parsed, frame: str) -> list[tuple[int, int]]:
        """The places of the lines of a text; none if they are not found."""
        found = list[tuple[int, int]]()
        for number, part in enumerate(token.content.split("\n"), (token.map or [0])[0]):
            start, stop = self.starts[number : number + 2]
            line, core = self.text[start:stop].rstrip(), _in_frame(part.lstrip(), frame)
            if frame == _CELL:
                before = _CONTAINERS.match(line)
                begin = line.find(core, self.cell_ends.get(number, before.end() if before else 0))
                self.cell_ends[number] = begin + len(core)
            else:
                line = _CLOSING.sub("", line).rstrip() if frame == _ATX else line
                begin = len(line) - len(core.rstrip())
            if begin < 0 or not line.startswith(core.rstrip(), begin):
                return []
            found.append((start + begin, start + begin + len(core)))
        return found

    def _add(self, text: _Text, parsed: Sequence[Parsed]) -> None:
        """Read the tokens of a text, and add after it the descriptions of its images."""
        self.texts.append(text)
        end = label = 0
        for one in parsed:
            begin, end = end, _end(one, end)
            token = _token(one, text.content[begin:end])
            if one.type == "link_open":
                label = end
            elif one.type == "link_close":
                text.links.append((token, text.content[label:begin]))
            elif one.type == "image" and one.content:
                self._add(_Text(one.content, _ATX, text.lines, token), one.children or [])
            if token.raw:
                text.tokens.append(token)
        text.tokens = with_untouched(text.tokens)

    def translated(self, translate: Translate, languages: tuple[str, str]) -> str:
        segments = [
            [one for one in segments_of(text.tokens, "html") if isinstance(one, Segment)] for text in self.texts
        ]
        found = translate([one.text for of_text in segments for one in of_text])
        spaced = has_spaces(languages[0]), has_spaces(languages[1])
        pieces, end = list[str](), len(self.text)
        for text, sources in zip(reversed(self.texts), reversed(segments), strict=True):  # images before their texts
            first = len(found) - len(sources)
            own, found = found[first:], found[:first]
            is_same = all(source.text == one for source, (one, _) in zip(sources, own, strict=True))
            written = "".join(token.raw for token in text.tokens) if is_same else self._written(text, own, spaced)
            if text.image is None:
                lines = _in_frame(written, text.frame).split("\n")
                marks = ["", *(self.text[stop:start] for (_, stop), (start, _) in pairwise(text.lines))]
                pieces.append(self.text[text.lines[-1][1] : end])
                pieces.append("".join(mark + line.lstrip() for mark, line in zip(marks, lines, strict=False)))
                end = text.lines[0][0]
            elif written != text.content:
                text.image.raw = f"![{written}{_with_label(text.image.raw[2 + len(text.content) :], text.content)}"
        return self.text[:end] + "".join(reversed(pieces))

    def _written(self, text: _Text, found: list[tuple[str, list[tuple[int, int]]]], spaced: tuple[bool, bool]) -> str:
        """Put the markup of a text into its translation; if it has no place there, return the source."""
        kept = "".join(token.raw for token in text.tokens)
        for token, label in text.links:
            token.raw = _with_label(token.raw, label)
        for space in ("",) if spaced[1] else ("", " "):
            written = _put_together(text, found, spaced, space)
            if text.frame == _ATX:
                written = re.sub(r"(?<!\S)(?=#+$)", r"\\", written)
            else:
                written = _BEGINNING.sub(r"\1\\", written)
            if written and self._markup(written, text.frame) == self._markup(kept, text.frame):
                return written
        self.left.append(text)
        return kept

    def _markup(self, text: str, frame: str) -> list[str]:
        """The blocks and the markup in a text, without its words."""
        blocks = _PARSER.parse(frame.format(_in_frame(text, frame)), self.env)
        inner = [part for block in blocks for one in block.children or [] for part in (one, *(one.children or []))]
        tags = [f"{one.type} {one.attrs} {'' if one.children else one.content}" for one in inner]
        return [
            *(one.type for one in blocks),
            *sorted(tag for tag in tags if not tag.startswith(("text", "softbreak"))),
        ]


def _put_together(
    text: _Text, found: list[tuple[str, list[tuple[int, int]]]], spaced: tuple[bool, bool], space: str
) -> str:
    """Put markup into translations; in a language without spaces, emphasis has `space` around it."""
    tokens = text.tokens
    if not spaced[1]:  # an emphasis stands directly beside letters, where _ would not be one
        tokens = [
            replace(token, raw=f"{space * (token.kind == 'open')}{raw}{space * (token.kind == 'close')}")
            if token.name in _EMPHASIS
            else token
            for token, raw in ((token, token.raw.replace("_", "*")) for token in tokens)
        ]
    left, written = iter(found), ""
    for part in segments_of(tokens, "html"):
        if isinstance(part, Segment):
            translation, pairs = next(left)
            escape = partial(_escaped, frame=text.frame)
            part = projected(part, " ".join(translation.splitlines()), pairs, spaced, escape)
        written += part
    return written.strip()


def _escaped(text: str, frame: str) -> str:
    text = _SIGNS.sub(lambda sign: sign[0] if sign[1] else f"\\{sign[0]}", text)
    return text.replace("|", "&#124;") if frame == _SETEXT else text  # above dashes, even \| would begin a table


def _in_frame(text: str, frame: str) -> str:
    """A text as it stands in a block: in cells, | has a backslash also within code."""
    return text.replace("|", r"\|") if frame in (_CELL, _ROW) else text


def _with_label(end: str, label: str) -> str:
    """How a link ends that keeps its label when its text changes."""
    return f"][{label}]" if end in ("]", "][]") else end


def _end(parsed: Parsed, begin: int) -> int:
    """Where a token ends that begins at this place."""
    if parsed.type == "text":
        return begin + len(parsed.content)
    if parsed.type == "text_special" or parsed.tag in _EMPHASIS:
        return begin + len(parsed.markup)
    return begin + 1 if parsed.type == "link_open" and parsed.nesting else int(parsed.meta["end"])


def _token(parsed: Parsed, raw: str) -> Token:
    if parsed.type in ("text", "text_special", "softbreak"):
        return Token("text", text=parsed.content or raw, raw=raw)
    if parsed.type == "html_inline" and (tag := html_tokens(raw)[1]).raw == raw:
        return tag
    return Token(("point", "open", "close")[parsed.nesting], parsed.tag, raw=raw)
