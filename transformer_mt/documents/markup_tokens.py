"""Cuts HTML and XML into tokens that keep their exact text, with the parsers of Python's standard library.

lxml gives a tree without the places of its nodes in the text, and a document that is written from a tree is no longer
the same: libxml2 2.14 puts the text after a <wbr> into it, turns <?php ?> into a comment, writes &copy; in another
form, and drops all text in HTML that is deeper than 256 elements.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import accumulate
from typing import Literal
from xml.parsers import expat

from transformer_mt.base.errors import TranslationError

Form = Literal["html", "xml"]
# HTML Living Standard, section 13.1.2: void elements.
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_UNTOUCHED = frozenset("code kbd math pre samp script style textarea".split())


@dataclass
class Token:
    """A piece of a document. The `raw` of all tokens, joined, is the document."""

    kind: Literal["text", "open", "close", "point"]
    """A point has no text and no matching tag: a void or untouched element, a comment, a declaration."""
    name: str = ""
    """The name of the element, in HTML in lower case."""
    text: str = ""
    """The text without entities."""
    is_kept: bool = False
    """Whether the tag says translate="no"."""
    attributes: list[tuple[str, str | None]] = field(default_factory=list)
    """Names and values of attributes that may be translated. XML has none: only HTML says which ones are text."""
    raw: str = ""
    parent: int = -1
    """The index of the open tag around it, or -1."""
    end: int = -1
    """For an open tag: the index of its close tag or, if it has none, of the token that ends its parent."""
    is_matched: bool = False
    """Whether a tag has its other half."""


def tokens_of(text: str, form: Form) -> list[Token]:
    """Cut a document into tokens. Each element that stays untouched is one point.

    Raises TranslationError if XML is not well-formed. HTML is never an error.
    """
    return with_untouched(html_tokens(text) if form == "html" else _xml_tokens(text))


def with_untouched(tokens: list[Token]) -> list[Token]:
    """Match tags, and make each element that stays untouched one point."""
    _match(tokens)
    found, index = list[Token](), 0
    while index < len(tokens):
        token, end = tokens[index], index + 1
        if token.kind == "open" and (token.is_kept or token.name in _UNTOUCHED):
            end = token.end + token.is_matched
            raw = "".join(one.raw for one in tokens[index:end])
            token = Token("point", token.name, attributes=token.attributes, raw=raw)
        found.append(token)
        index = end
    _match(found)
    return found


def _match(tokens: list[Token]) -> None:
    """Match open and close tags: a close tag ends the last open element of its name, and all elements in it."""
    stack, num_open = list[int](), Counter[str]()
    for index, token in enumerate(tokens):
        token.is_matched = False
        while token.kind == "close" and num_open[token.name] and not token.is_matched:
            begun = tokens[stack.pop()]
            begun.end, begun.is_matched = index, begun.name == token.name
            token.is_matched = begun.is_matched
            num_open[begun.name] -= 1
        token.parent = stack[-1] if stack else -1
        if token.kind == "open":
            stack.append(index)
            num_open[token.name] += 1
            token.end = len(tokens)


# The place of each token, and the token without `raw`. What a parser skips belongs to the token before it.
_Found = list[tuple[int, Token]]


def _with_raw(found: _Found, length: int, cut: Callable[[int, int], str]) -> list[Token]:
    ends = [*(begin for begin, _ in found[1:]), length]
    for (begin, token), end in zip(found, ends, strict=True):
        token.raw = cut(begin, end)
    return [token for _, token in found]


class _HtmlReader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: _Found = [(0, Token("point"))]
        self.lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.feed(text)
        self.close()

    def _add(self, token: Token) -> None:
        line, column = self.getpos()
        self.found.append((self.lines[line - 1] + column, token))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_kept = any(name == "translate" and (value or "").lower() == "no" for name, value in attrs)
        attributes = [] if is_kept else attrs
        self._add(Token("point" if tag in _VOID else "open", tag, is_kept=is_kept, attributes=attributes))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.found[-1][1].kind = "point"

    def handle_endtag(self, tag: str) -> None:
        self._add(Token("close", tag))

    def handle_data(self, data: str) -> None:
        self._add(Token("text", text=data))

    def handle_comment(self, data: str) -> None:
        self._add(Token("point"))

    def handle_decl(self, decl: str) -> None:
        self._add(Token("point"))

    handle_pi = unknown_decl = handle_comment


_COMMENT = re.compile(r"</>|<!---?>|<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?\]\]>", re.DOTALL)


def _plain_comment(found: re.Match[str]) -> str:
    """Write as a plain comment, as long as before, what the versions of the parser read in different ways.

    </> means nothing, and the parser would skip it; <!--> and <!---> are complete; CDATA may stand in SVG and MathML.
    """
    raw = found[0]
    if raw in ("</>", "<!-->", "<!--->"):
        return f"<!{'x' * (len(raw) - 3)}>"
    return f"<!--{re.sub('[->]', 'x', raw[4:-3])}-->" if raw.startswith("<![") else raw


def html_tokens(text: str) -> list[Token]:
    """Cut HTML into tokens, the first and the last without text, and match no tags."""
    # Cut off an unfinished comment or tag, because older versions of the parser take very long to find its end.
    plain = _COMMENT.sub(_plain_comment, text)
    comment = plain.find("<!--", plain.rfind("-->") + 1)
    end = len(plain) if comment < 0 else comment
    tag = re.compile("<[a-zA-Z/!?]").search(plain, plain.rfind(">", 0, end) + 1, end)
    end = tag.start() if tag else end
    found = [*_HtmlReader(plain[:end]).found, (end, Token("point"))]
    return _with_raw(found, len(text), lambda begin, end: text[begin:end])


def _xml_tokens(text: str) -> list[Token]:
    """Cut XML into tokens. The parser reads no other file, and replaces no entity that the document declares."""
    content, found, is_literal = text.encode(), [(0, Token("point"))], False
    parser = expat.ParserCreate("utf-8")

    def add(token: Token) -> None:
        found.append((parser.CurrentByteIndex, token))

    def close(name: str) -> None:
        end = parser.CurrentByteIndex
        if found[-1][1].kind == "open" and content[end - 2 : end] == b"/>":  # <name/>
            found[-1][1].kind = "point"
        else:
            add(Token("close", name))

    def literal(begins: bool) -> None:  # a CDATA section: often text in another language, such as HTML
        nonlocal is_literal
        is_literal = begins
        if begins:
            add(Token("point"))

    def declare(version: str, encoding: str | None, standalone: int) -> None:
        if encoding and encoding.lower() not in ("utf-8", "us-ascii"):
            raise TranslationError(f"the XML declares the encoding {encoding}: convert it to UTF-8, and declare that")
        add(Token("point"))

    parser.StartElementHandler = lambda name, given: add(Token("open", name, is_kept=given.get("translate") == "no"))
    parser.EndElementHandler = close
    parser.CharacterDataHandler = lambda data: None if is_literal else add(Token("text", text=data))
    parser.StartCdataSectionHandler, parser.EndCdataSectionHandler = lambda: literal(True), lambda: literal(False)
    parser.XmlDeclHandler = declare
    parser.DefaultHandler = lambda data: add(Token("point"))
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise TranslationError(
            f"line {error.lineno}, column {error.offset + 1}: the XML is not well-formed ({reason}); correct it, or "
            "read it as HTML"
        ) from None
    return _with_raw(found, len(content), lambda begin, end: content[begin:end].decode())
