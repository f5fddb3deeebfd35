"""The sentences of one language as token ids in memory-mapped files: in one part, or in several (shards)."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

_AT_A_TIME = 1_000_000  # sentences whose lengths are in memory together
_GATHERED = 100_000  # sentences whose ids are in memory together


@dataclass(frozen=True)
class EncodedText:
    """Sentences end to end. Sentence i is ids[offsets[i] : offsets[i + 1]], EOS included."""

    ids: NDArray[Any]
    """uint16 or uint32 [tokens], memory-mapped."""
    offsets: NDArray[np.int64]
    """[sentences + 1], memory-mapped."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the ids."""
        return self.ids.dtype

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all sentences."""
        return len(self.ids)

    @cached_property
    def longest(self) -> int:
        """The number of tokens of the longest sentence; 0 without sentences."""
        starts = range(0, len(self), _AT_A_TIME)
        return max((int(np.diff(self.offsets[start : start + _AT_A_TIME + 1]).max()) for start in starts), default=0)

    def lengths(self, sentences: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the number of tokens of each of these sentences, EOS included."""
        lengths: NDArray[np.int64] = self.offsets[sentences + 1] - self.offsets[sentences]
        return lengths

    def gather(self, sentences: NDArray[np.integer[Any]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of these sentences, end to end in their order, and the number of tokens of each."""
        starts = self.offsets[sentences]
        lengths = self.offsets[sentences + 1] - starts
        ends = lengths.cumsum()
        num_tokens = int(ends[-1]) if len(ends) else 0
        return self.ids[np.repeat(starts - ends + lengths, lengths) + np.arange(num_tokens)], lengths


@dataclass(frozen=True)
class ShardedText:
    """Sentences in several parts, numbered through all of them. Nothing is copied; the parts stay on disk."""

    parts: tuple[EncodedText, ...]
    num_tokens: int
    longest: int
    """Both are of the sentences that belong to the text."""
    kept: NDArray[np.int64] | None = None
    """The sentences that belong to the text, in rising order, memory-mapped; None: all of the parts do."""

    def __len__(self) -> int:
        return int(self._starts[-1]) if self.kept is None else len(self.kept)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the ids."""
        return self.parts[0].dtype

    def lengths(self, sentences: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the number of tokens of each of these sentences, EOS included."""
        _, starts, ends = self._bounds(sentences)
        return ends - starts

    def gather(self, sentences: NDArray[np.integer[Any]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of these sentences, end to end in their order, and the number of tokens of each."""
        where, starts, ends = self._bounds(sentences)
        places = zip(where.tolist(), starts.tolist(), ends.tolist(), strict=True)
        ids = [self.parts[part].ids[start:end] for part, start, end in places]
        return np.concatenate(ids) if ids else np.empty(0, self.dtype), ends - starts

    def rows(self, sentences: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return in which part each of these sentences lies, and the number that it has there."""
        numbers = sentences if self.kept is None else self.kept[sentences]
        where = np.searchsorted(self._starts, numbers, side="right") - 1
        return where, numbers - self._starts[where]

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *map(len, self.parts)], dtype=np.int64)

    def _bounds(
        self, sentences: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the part of each sentence, and where in its ids the sentence begins and ends."""
        where, rows = self.rows(sentences)
        starts, ends = np.empty_like(rows), np.empty_like(rows)
        order = np.argsort(narrow(where), kind="stable")
        edges = np.flatnonzero(np.diff(where[order], prepend=-1, append=len(self.parts)))
        for begin, end in pairwise(edges.tolist()):
            of_part = order[begin:end]
            offsets = self.parts[where[of_part[0]]].offsets
            starts[of_part], ends[of_part] = offsets[rows[of_part]], offsets[rows[of_part] + 1]
        return where, starts, ends


Text = EncodedText | ShardedText


def piece_counts(text: Text, vocab_size: int) -> NDArray[np.int64]:
    """Return how often each piece stands in a text; int64 [vocab_size]. Reads all of the text."""
    counts = np.zeros(vocab_size, np.int64)
    for start in range(0, len(text), _GATHERED):
        ids, _ = text.gather(np.arange(start, min(start + _GATHERED, len(text))))
        counts += np.bincount(ids, minlength=vocab_size)
    return counts


def narrow(numbers: NDArray[np.int64]) -> NDArray[np.unsignedinteger[Any]]:
    """Return numbers of 0 or more in as few bytes as all have room in: NumPy sorts those of two bytes much faster."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))
