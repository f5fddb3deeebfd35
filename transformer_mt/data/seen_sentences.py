"""Finds which sentences of test sets stand in the training text, by its token ids."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.encoded_text import EncodedText, Part, Text

_AT_A_TIME = 500_000  # pairs whose lengths are in memory together
_LONGEST = 2**16  # tokens of a sentence; longer ones of a test set are not looked for
_MIX = tuple(
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xFF51AFD7ED558CCD)
)

Line = tuple[str, int]
"""The name of a test set, and the number of a line in it, from 1."""


@dataclass(frozen=True)
class Wanted:
    """The sentences that are looked for: the lines that have these token ids, EOS included, as bytes."""

    dtypes: tuple[np.dtype[Any], np.dtype[Any]]
    """Of the ids of source and target in the training text."""
    sources: dict[bytes, list[Line]] = field(default_factory=lambda: defaultdict(list))
    targets: dict[bytes, set[Line]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def in_corpus(cls, corpus: EncodedCorpus) -> "Wanted":
        """Look for nothing as yet in this training text."""
        return cls((corpus.source.dtype, corpus.target.dtype))

    def add_sources(self, name: str, sentences: Sequence[Sequence[int]]) -> None:
        """Look for these sources of a test set. Those without a piece are left out."""
        for line, ids in enumerate(sentences, start=1):
            if 1 < len(ids) < _LONGEST:
                self.sources[np.array(ids, self.dtypes[0]).tobytes()].append((name, line))

    def add_targets(self, name: str, sentences: Sequence[Sequence[int]]) -> None:
        """Look for these targets, too: where one stands beside its source, the pair stands in the training text."""
        for line, ids in enumerate(sentences, start=1):
            self.targets[np.array(ids, self.dtypes[1]).tobytes()].add((name, line))


@dataclass(frozen=True)
class Seen:
    """Lines that stand in the training text, each with the number of the first such pair, from 0."""

    sources: dict[Line, int] = field(default_factory=dict)
    pairs: dict[Line, int] = field(default_factory=dict)


def find_seen(corpus: EncodedCorpus, wanted: Wanted) -> Seen:
    """Look for sentences in all of the training text.

    Every pair of the text is compared by the length of its source and three of its ids, and only where these are those
    of a sentence that is looked for, by all ids. Memory does not grow with the number of pairs.
    """
    seen = Seen()
    if not wanted.sources:
        return seen
    keys, lengths = _keys_of(wanted.sources, wanted.dtypes[0])
    first = 0
    for source, target in zip(_parts(corpus.source), _parts(corpus.target), strict=True):
        for rows, starts, ends in _rows(source, lengths):
            alike = np.flatnonzero(_contains(keys, _keys(source.text.ids, starts, ends)))
            for at in alike.tolist():
                lines = wanted.sources.get(source.text.ids[starts[at] : ends[at]].tobytes())
                if lines:
                    _note(seen, wanted, lines, first, target, int(rows[at]))
        first += len(source)
    return seen


def _note(seen: Seen, wanted: Wanted, lines: Iterable[Line], first: int, target: Part, row: int) -> None:
    """Note that these lines have the source of the pair in this row of a part, whose first pair has number `first`."""
    number = row if target.kept is None else int(target.kept[row])
    begin, end = target.text.offsets[number : number + 2]
    same_target = wanted.targets.get(target.text.ids[begin:end].tobytes(), ())
    for line in lines:
        seen.sources.setdefault(line, first + row)
        if line in same_target:
            seen.pairs.setdefault(line, first + row)


def _parts(text: Text) -> tuple[Part, ...]:
    return (Part(text),) if isinstance(text, EncodedText) else text.parts


def _rows(part: Part, lengths: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.int64], ...]]:
    """Yield the rows whose sentences have one of these lengths, and where these begin and end in the ids.

    `lengths` says of each number of tokens whether it is one; bool [longest + 1].
    """
    for begin in range(0, len(part), _AT_A_TIME):
        rows = np.arange(begin, min(begin + _AT_A_TIME, len(part)))
        if part.kept is None:
            bounds = part.text.offsets[begin : begin + _AT_A_TIME + 1]
            starts, ends = bounds[:-1], bounds[1:]
        else:
            numbers = part.kept[rows]
            starts, ends = part.text.offsets[numbers], part.text.offsets[numbers + 1]
        kept = lengths[np.minimum(ends - starts, len(lengths) - 1)]
        yield rows[kept], starts[kept], ends[kept]


def _keys_of(sentences: Iterable[bytes], dtype: np.dtype[Any]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return the keys of these sentences, sorted, and which lengths they have: bool [longest + 2], the last False."""
    ids = [np.frombuffer(sentence, dtype) for sentence in sentences]
    ends = np.array([*accumulate(map(len, ids))])
    sizes = np.array([*map(len, ids)])
    lengths = np.zeros(int(sizes.max()) + 2, np.bool_)
    lengths[sizes] = True
    return np.unique(_keys(np.concatenate(ids), ends - sizes, ends)), lengths


def _keys(ids: NDArray[Any], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a number for each sentence that depends on its length, and on its first, middle and last piece."""
    sizes = ends - starts
    parts = (sizes, ids[starts], ids[starts + sizes // 2], ids[np.maximum(ends - 2, starts)])
    keys = np.zeros(len(starts), np.uint64)
    for part, mix in zip(parts, _MIX, strict=True):
        keys += part.astype(np.uint64) * mix  # without signs, so that it wraps around
    return keys


def _contains(keys: NDArray[np.uint64], found: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which of the numbers found are in the sorted keys."""
    at = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
    same: NDArray[np.bool_] = keys[at] == found
    return same
