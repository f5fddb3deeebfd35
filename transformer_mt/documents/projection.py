"""Puts the tags of a segment into its translation, over the alignment of the words.

Each element gets one span of the translation, so no tag is lost and none is repeated. If the words of an element stand
in several places, it gets the span in which its own words most outnumber those of others: everything from its first to
its last word if little else is between, otherwise the largest part. Tags stand between words, with two exceptions: in a
word that the translation has copied, they stand before the same letter, and punctuation beside a word can be outside.
"""

import html
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from transformer_mt.documents.segments import Node, Segment

_REACH = 8  # how many words away a word may be that gives its place to an element or a point
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # in XML

Span = tuple[int, int]
"""The first place, and the place after the last."""


def escaped(text: str) -> str:
    """Return a text as HTML and XML write it between tags."""
    return html.escape(_FORBIDDEN.sub("\ufffd", text), quote=False)


def projected(
    segment: Segment,
    translation: str,
    pairs: Iterable[Span],
    spaced: tuple[bool, bool],
    escape: Callable[[str], str] = escaped,
) -> str:
    """Return the translation of a segment with its tags.

    `pairs` are those of a word of the source and a word of the translation, numbered from 0. `spaced` says whether the
    source and the target language have spaces between words; if not, the pairs are of characters. `escape` writes a
    text without tags, or a part of it, as the document does.
    """
    text = translation.strip()
    if len(segment.nodes) == 1:
        return segment.head + escape(text) + segment.tail
    return segment.head + "".join(_written(_Projection(segment, text, pairs, spaced), text, escape)) + segment.tail


def _words(text: str, spaced: bool) -> list[Span]:
    return [found.span() for found in re.finditer(r"\S+" if spaced else r"\S", text)]


def _cuts(text: str, start: int, stop: int) -> set[int]:
    """Where a word begins and ends, with and without the punctuation around it."""
    inner = [place for place in range(start, stop) if text[place].isalnum()]
    return {start, stop, inner[0], inner[-1] + 1} if inner else {start, stop}


def _is_word(text: str, span: Span) -> bool:
    return any(character.isalnum() for character in text[slice(*span)])


class _OpenTag(str):
    """A tag before the words of its element."""


class _CloseTag(str):
    """A tag after the words of its element."""


class _Projection:
    """The places of nodes in a translation. Atoms are words, cut at tags and at the punctuation around them."""

    def __init__(self, segment: Segment, text: str, pairs: Iterable[Span], spaced: tuple[bool, bool]) -> None:
        self.nodes = segment.nodes
        self.source: list[Span] = []
        """The places of the source atoms."""
        self.atoms: list[Span] = []
        """The places of the target atoms."""
        self.links: list[int] = []
        """For each target atom, the number of its source atom, or -1."""
        self._read_atoms(segment, text, list(pairs), spaced)
        starts = [start for start, _ in self.source]
        self.covered = [(bisect_left(starts, node.start), bisect_left(starts, node.stop)) for node in self.nodes]
        """The source atoms of each node."""
        innermost = [0] * len(starts)
        for number, (first, stop) in enumerate(self.covered):
            innermost[first:stop] = [number] * (stop - first)
        self.owners = [innermost[link] if link >= 0 else 0 for link in self.links]
        """For each target atom, the innermost node around its source atom."""
        self.targets: defaultdict[int, list[int]] = defaultdict(list)
        """The target atoms of each source atom."""
        for place, link in enumerate(self.links):
            if link >= 0:
                self.targets[link].append(place)
        words = (link >= 0 and _is_word(text, atom) for link, atom in zip(self.links, self.atoms, strict=True))
        self.num_words = [0, *accumulate(words)]
        self.holders = [0] * len(self.atoms)
        """For each target atom, the innermost node around it."""
        self.spans = [(0, len(self.atoms))] * len(self.nodes)
        """The target atoms of each node."""
        self.children = [list[int]() for _ in self.nodes]
        for number, node in enumerate(self.nodes[1:], start=1):
            self.children[node.parent].append(number)
        own = [list(range(len(self.atoms))), *([] for _ in self.nodes[1:])]
        for number in range(len(self.nodes)):
            self._place_children(number, own)

    def _read_atoms(self, segment: Segment, text: str, pairs: list[Span], spaced: tuple[bool, bool]) -> None:
        marks = sorted({place for node in segment.nodes for place in (node.start, node.stop)})
        words = list[range]()  # the atoms of each source word
        for start, stop in _words(segment.text, spaced[0]):
            within = marks[bisect_left(marks, start) : bisect_left(marks, stop)]
            cuts = sorted({*_cuts(segment.text, start, stop), *within})
            words.append(range(len(self.source), len(self.source) + len(cuts) - 1))
            self.source += pairwise(cuts)
        source_of = {target: words[source] for source, target in reversed(pairs) if 0 <= source < len(words)}
        for number, (start, stop) in enumerate(_words(text, spaced[1])):
            word = source_of.get(number, range(0))
            if word and segment.text[self.source[word[0]][0] : self.source[word[-1]][1]] == text[start:stop]:
                shift = start - self.source[word[0]][0]
                self.atoms += [(self.source[atom][0] + shift, self.source[atom][1] + shift) for atom in word]
                self.links += word
                continue
            for atom in pairwise(sorted(_cuts(text, start, stop))):
                self.atoms.append(atom)
                self.links.append(self._link(segment.text, word, at_end=atom[0] > start, is_word=_is_word(text, atom)))

    def _link(self, text: str, word: range, *, at_end: bool, is_word: bool) -> int:
        """The atom of a source word that belongs to a target atom: the longest, or the punctuation there; or -1."""
        if is_word and word:
            return max(word, key=lambda atom: (_is_word(text, self.source[atom]), len(range(*self.source[atom]))))
        atom = word[-1 if at_end else 0] if word else -1
        return -1 if atom >= 0 and _is_word(text, self.source[atom]) else atom

    def _place_children(self, parent: int, own: list[list[int]]) -> None:
        """Give each child of a node its span. `own[n]` are the target atoms in the span of node n that come from it."""
        best: dict[int, tuple[int, Span]] = {}
        score, start, before, child_before = 0, 0, 0, 0
        for place in own[parent]:
            if child := self._child(parent, self.owners[place]):
                own[child].append(place)
                # Kadane's algorithm: the span with the largest sum of 1 for each own atom and -1 for words of others.
                between = self.num_words[place] - self.num_words[before + 1] if child == child_before else score + 1
                score, start = (score - between + 1, start) if between <= score else (1, place)
                if child not in best or score >= best[child][0]:
                    best[child] = score, (start, place + 1)
                before, child_before = place, child
        for child in [*best, *(child for child in self.children[parent] if child not in best)]:
            begin, end = self.spans[child] = best[child][1] if child in best else self._beside(parent, child)
            self.holders[begin:end] = [child] * (end - begin)
            own[child] = [place for place in own[child] if begin <= place < end]

    def _child(self, parent: int, number: int) -> int:
        """The child of `parent` that is this node or around it; 0 if there is none."""
        while number and self.nodes[number].parent != parent:
            number = self.nodes[number].parent
        return number

    def _beside(self, parent: int, child: int) -> Span:
        """The span of a point, or of an element without own words in the span of its parent."""
        (begin, end), (first, stop) = self.spans[parent], self.covered[child]
        for distance in range(1, _REACH + 1) if first < stop else ():  # a free word that comes from a neighbour
            for source in (first - distance, stop - 1 + distance):
                for place in self.targets.get(source, ()):
                    if begin <= place < end and self.holders[place] == parent:
                        return place, place + 1
        sides = [(-1, 1), (1, 0)]  # after the word before it or, if white space is only before it, before the next one
        if self.nodes[child].space_before and not self.nodes[child].space_after:
            sides.reverse()
        for distance in range(_REACH):
            for direction, side in sides:
                source = first - 1 - distance if direction < 0 else first + distance
                if places := [place for place in self.targets.get(source, ()) if begin <= place < end]:
                    gap = places[-1] + 1 if side else places[0]
                    return gap, gap  # if it is in another child, `in_order` puts it after that child
        return end, end

    def in_order(self) -> Iterator[Node | str | Span]:
        """Yield points, tags, and the places of atoms in the order of the translation."""
        items = [list[tuple[int, bool, int]]() for _ in self.nodes]
        for number, node in enumerate(self.nodes[1:], start=1):
            begin, end = self.spans[number]
            items[node.parent].append((begin, begin < end, number))
        for place, holder in enumerate(self.holders):
            items[holder].append((place, True, 0))
        stack = [(iter(sorted(items[0])), "")]
        while stack:
            place, _, number = next(stack[-1][0], (0, False, -1))
            node = self.nodes[number]
            if number < 0:
                yield _CloseTag(stack.pop()[1])
            elif number == 0:
                yield self.atoms[place]
            elif not node.closing:
                yield node
            else:
                yield _OpenTag(node.opening)
                stack.append((iter(sorted(items[number])), node.closing))


def _written(projection: _Projection, text: str, escape: Callable[[str], str]) -> Iterator[str]:
    waiting, end = list[Node | str](), 0
    for item in [*projection.in_order(), (len(text), len(text))]:
        if isinstance(item, tuple):
            around = text[:end][-1:].isalnum(), text[item[0] :][:1].isalnum()
            yield from _between(waiting, text[end : item[0]], around, is_first=end == 0, is_last=item[0] == len(text))
            yield escape(text[slice(*item)])
            waiting, end = [], item[1]
        else:
            waiting.append(item)


def _between(
    items: Sequence[Node | str], space: str, around: tuple[bool, bool], *, is_first: bool, is_last: bool
) -> list[str]:
    """What stands between two atoms. `space` is the white space between them in the translation.

    White space goes after close tags and before open tags. Beside a point it is as in the source; but there is also one
    where the source has a mark beside the point, such as a bracket, and the translation a letter: see `around`.
    """
    is_due = bool(space) and not any(isinstance(item, Node) and item.is_wide for item in items)
    written = list[str]()
    for item in items:
        if isinstance(item, Node):
            beside = space or " " * (item.is_wide or is_first or is_last)
            begin = len(written)
            while begin and isinstance(written[begin - 1], _OpenTag):
                begin -= 1
            needs_space = item.space_before or (item.mark_before and around[0])
            if needs_space and not is_first and not (begin and written[begin - 1].isspace()):
                written.insert(begin, beside)
                is_due = False
            written.append(item.opening)
            if (item.space_after or (item.mark_after and around[1])) and not is_last:
                written.append(beside)
            is_due = is_due and not item.space_after
        else:
            if is_due and not isinstance(item, _CloseTag):
                written.append(space)
                is_due = False
            is_after_space = isinstance(item, _CloseTag) and written and written[-1].isspace()
            written.insert(len(written) - bool(is_after_space), item)
    return [*written, space] if is_due else written
