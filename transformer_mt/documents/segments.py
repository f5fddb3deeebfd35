"""Cuts the tokens of a document into segments, which are translated, and what stands between them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from transformer_mt.documents.markup_tokens import Form, Token

# Elements that stand in sentences of HTML, and of WebVTT (c, lang, v). The tags of all others end a segment.
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big br c cite code data del dfn em font i img ins kbd label lang mark math q ruby s samp "
    "small span strike strong sub sup time tt u v var wbr".split()
)
_DEEPEST = 30  # inline elements in each other; more are not the work of an author
_BLANKS = re.compile("[ \t\r\n\f]+")


@dataclass
class Node:
    """An inline element with text; or a point, which has none: a void or untouched element, a comment."""

    parent: int
    """The index of the node around it. Node 0 is the segment itself."""
    opening: str = ""
    """The open tag, or the complete point."""
    closing: str = ""
    start: int = 0
    """The number of characters before it in the text of the segment."""
    stop: int = 0
    """The number of characters until its end: equal to `start` for a point."""
    is_wide: bool = False
    """Whether a point separates words."""
    space_before: bool = False
    """Whether white space stands before a point."""
    space_after: bool = False
    mark_before: bool = False
    """Whether a mark, such as a bracket, stands directly before a point."""
    mark_after: bool = False


@dataclass
class Segment:
    """A text to translate, what stands in it, and what stays before and after it."""

    text: str = ""
    head: str = ""
    tail: str = ""
    nodes: list[Node] = field(default_factory=lambda: [Node(-1)])


def segments_of(tokens: Sequence[Token], form: Form) -> Iterator[Segment | str]:
    """Yield the segments of a document, in order, and between them what stays as it is."""
    begin = 0
    for index, is_break in enumerate([*_breaks(tokens, form), True]):
        if is_break:
            yield _segment(tokens, begin, index)
            yield "".join(token.raw for token in tokens[index : index + 1])
            begin = index + 1


def _breaks(tokens: Sequence[Token], form: Form) -> list[bool]:
    """For each token, whether it stands between segments."""
    mixed = {token.parent for token in tokens if token.text.strip()}
    inline, depths, breaks = list[bool](), list[int](), list[bool]()
    for token in tokens:
        is_inside = token.parent >= 0 and inline[token.parent]
        # Inline in XML is what stands beside text.
        is_inline = token.name in _INLINE if form == "html" else token.parent in mixed or is_inside
        inline.append(is_inline or not token.name)
        depths.append(1 + depths[token.parent] if is_inside else 0)
        is_loose = token.kind in ("open", "close") and not token.is_matched
        breaks.append(is_loose or not inline[-1] or (token.kind != "text" and depths[-1] > _DEEPEST))
    before = [0, *accumulate(breaks)]
    for index, token in enumerate(tokens):  # an inline element around a block counts as a block
        if token.kind == "open" and token.is_matched and before[index] < before[token.end]:
            breaks[index] = breaks[token.end] = True
    return breaks


def _segment(tokens: Sequence[Token], begin: int, end: int) -> Segment | str:
    """Return the segment in these tokens, without the tags around it; or their `raw`, if they have no words."""
    texts = [index for index in range(begin, end) if tokens[index].text.strip()]
    if not any(character.isalnum() for index in texts for character in tokens[index].text):
        return "".join(token.raw for token in tokens[begin:end])
    first, last = texts[0], texts[-1]
    # Of the tags before and after the text, only those whose other half stands in the text belong to the segment.
    start = next((index for index in range(begin, first) if first < tokens[index].end <= last), first)
    ends = {tokens[index].end for index in range(start, last)}
    stop = 1 + max(index for index in range(last, end) if index == last or index in ends)
    segment = _Reader(tokens, start, stop).segment
    segment.head = "".join(token.raw for token in tokens[begin:start]) + segment.head
    segment.tail += "".join(token.raw for token in tokens[stop:end])
    return segment


class _Reader:
    """Reads the tokens of a segment."""

    def __init__(self, tokens: Sequence[Token], start: int, stop: int) -> None:
        self.segment, self.nodes, self.parts, self.length = Segment(), [Node(-1)], list[str](), 0
        self.after_space, self.trailing = True, ""
        self.last_point = Node(-1)  # the point directly before, if there is one
        num_texts, parent, index = [0, *accumulate(bool(token.text.strip()) for token in tokens[start:stop])], 0, start
        while index < stop:
            token = tokens[index]
            if token.kind == "text":
                self._add_text(token.text)
            elif token.kind == "close":
                self.nodes[parent].closing, self.nodes[parent].stop = token.raw, self.length
                parent = self.nodes[parent].parent
            elif token.kind == "open" and num_texts[index - start] < num_texts[token.end - start]:
                self.nodes.append(Node(parent, token.raw, start=self.length))
                parent = len(self.nodes) - 1
            else:
                end = max(index, token.end)
                self._add_point(parent, tokens[index : end + 1])
                index = end
            index += 1
        text = "".join(self.parts)
        self.segment.text, self.segment.nodes, self.nodes[0].stop = text.rstrip(), self.nodes, len(text)
        if self.nodes[-1] is self.last_point:
            self.nodes[-1].space_after = True
        else:
            self.segment.tail = self.trailing

    def _add_text(self, text: str) -> None:
        self.last_point.space_after, self.last_point.mark_after = text[0].isspace(), _is_mark(text[0])
        self.last_point = Node(-1)
        if not self.length:
            if self.after_space:  # else a point is before it
                self.segment.head += text[: len(text) - len(text.lstrip())]
            text = text.lstrip()
        if text:
            self.after_space, self.trailing = text[-1].isspace(), text[len(text.rstrip()) :]
        self._append(_BLANKS.sub(" ", text))

    def _add_point(self, parent: int, tokens: Sequence[Token]) -> None:
        """Add a point: one token, or those of an element without text."""
        inside = tokens if len(tokens) == 1 else tokens[1:-1]
        is_wide = any(
            token.kind != "close" and token.name != "wbr" and token.raw[:4] not in ("<!--", "</>") for token in inside
        )
        raw = "".join(token.raw for token in tokens)
        self.last_point = Node(parent, raw, "", self.length, self.length, is_wide, self.after_space)
        self.last_point.mark_before = bool(self.parts) and _is_mark(self.parts[-1][-1])
        self.nodes.append(self.last_point)
        self.after_space = False
        if is_wide:
            self._append(" ")

    def _append(self, text: str) -> None:
        """Add to the text of the segment, without a second space."""
        if not self.parts or self.parts[-1].endswith(" "):
            text = text.removeprefix(" ")
        if text:
            self.parts.append(text)
            self.length += len(text)


def _is_mark(character: str) -> bool:
    return not character.isspace() and not character.isalnum()
