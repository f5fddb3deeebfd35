"""Opens the token ids that `prepare` wrote, as memory maps: a directory, or a training set in shards."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from transformer_mt.base.errors import CorpusError
from transformer_mt.storage.files import read_json

_AT_A_TIME = 1_000_000  # the most sentences with lengths in memory at a time


@dataclass(frozen=True)
class EncodedText:
    """Sentences end to end. Sentence i is ids[offsets[i] : offsets[i + 1]], EOS included."""

    ids: NDArray[Any]
    """uint16 or uint32 [tokens]; memory-mapped if it is on the disk."""
    offsets: NDArray[np.int64]
    """[sentences + 1]; memory-mapped if it is on the disk."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

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
        return self.ids[np.repeat(starts - ends + lengths, lengths) + np.arange(lengths.sum())], lengths


@dataclass(frozen=True)
class ShardedText:
    """Sentences in several parts, numbered through all parts. The parts stay on disk."""

    parts: tuple[EncodedText, ...]
    num_tokens: int
    longest: int
    """This and num_tokens count only sentences that belong to the text."""
    kept: NDArray[np.int64] | None = None
    """The sentences that belong to the text, ascending, memory-mapped; None if all do."""

    def __len__(self) -> int:
        return int(self._starts[-1]) if self.kept is None else len(self.kept)

    def lengths(self, sentences: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        _, starts, ends = self._bounds(sentences)
        return ends - starts

    def gather(self, sentences: NDArray[np.integer[Any]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        where, starts, ends = self._bounds(sentences)
        places = zip(where.tolist(), starts.tolist(), ends.tolist(), strict=True)
        ids = [self.parts[part].ids[start:end] for part, start, end in places]
        return np.concatenate(ids or [self.parts[0].ids[:0]]), ends - starts

    def rows(self, sentences: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the part of each of these sentences, and its number in this part."""
        numbers = sentences if self.kept is None else self.kept[sentences]
        where = np.searchsorted(self._starts, numbers, side="right") - 1
        return where, numbers - self._starts[where]

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *map(len, self.parts)], dtype=np.int64)

    def _bounds(
        self, sentences: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the part of each sentence, and the positions in its ids where the sentence begins and ends."""
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


def sentences_of(text: Text, sentences: NDArray[np.integer[Any]]) -> list[list[int]]:
    """Return the ids of each of these sentences, EOS included."""
    ids, lengths = text.gather(sentences)
    return [part.tolist() for part in np.split(ids, lengths.cumsum()[:-1])]


def encoded_text(sentences: Sequence[Sequence[int]], dtype: Any) -> EncodedText:
    """Put the ids of sentences end to end, in a type of NumPy."""
    offsets = np.fromiter(accumulate(map(len, sentences), initial=0), np.int64, len(sentences) + 1)
    return EncodedText(np.fromiter(chain.from_iterable(sentences), dtype, offsets[-1]), offsets)


def narrow(numbers: NDArray[np.int64]) -> NDArray[np.unsignedinteger[Any]]:
    """Return numbers of 0 or more in the smallest type that holds all: NumPy sorts numbers of two bytes much faster."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


SIZES = "sizes.json"
IDS = ("source.ids", "source.offsets", "target.ids", "target.offsets")
FILES = (*IDS, SIZES)
INDEX, KEPT = "shards.json", "kept.rows"  # of a training set
RECORD, LINES = "shard.json", "lines"  # of a shard
_DTYPES = ("uint16", "uint32")
_SHOWN = 20  # places of pairs that a message shows

Place = tuple[str, int]  # the file, and the number of the line, row or unit in it, from 1


class ShardIndex(BaseModel):
    """The list of the shards of a training set, with which training opens all of them as one corpus."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    shards: tuple[str, ...] = Field(min_length=1)
    """Their directories, relative to that of the index, in the order of the configuration."""
    sizes: tuple[int, ...]
    """The number of pairs of each corpus that belong to the training set."""
    tokens: tuple[int, int]
    """The numbers of tokens of these pairs, EOS included, in source and target."""
    longest: tuple[int, int]
    """The numbers of tokens of the longest sentence in source and target."""
    has_kept: bool
    """Whether the file KEPT lists the pairs that belong to the training set, as int64, numbered through all shards.
    Otherwise, all pairs belong to it."""

    @classmethod
    def load(cls, directory: Path) -> "ShardIndex":
        """Read shards.json. Raises OSError or ValueError if it cannot be read."""
        return cls.model_validate(read_json(directory / INDEX))


@dataclass(frozen=True)
class EncodedCorpus:
    """The sentence pairs of a split: sentence i of the source and sentence i of the target are a pair."""

    source: Text
    target: Text
    sizes: tuple[int, ...] = ()
    """The number of pairs of each corpus, in the order of the configuration; pairs are numbered through all of them."""

    def __post_init__(self) -> None:
        if not self.sizes:
            object.__setattr__(self, "sizes", (len(self.source),))

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def load(cls, directory: Path) -> "EncodedCorpus":
        """Open the ids in a directory, or the shards of a training set. Raises CorpusError if a file is damaged."""
        try:
            if not (directory / INDEX).exists():
                source, target = _load_sides(directory)
                return cls(source, target)
            index = ShardIndex.load(directory)
            sources, targets = zip(*(_load_sides(directory / shard) for shard in index.shards), strict=True)
            kept = _map(directory / KEPT, np.dtype(np.int64), sum(index.sizes)) if index.has_kept else None
            if len(sources) == 1 and kept is None:
                return cls(sources[0], targets[0], index.sizes)
            return cls(
                ShardedText(sources, index.tokens[0], index.longest[0], kept),
                ShardedText(targets, index.tokens[1], index.longest[1], kept),
                index.sizes,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorpusError(
                f"{directory}: is missing, or has changed since it was written ({error}); delete {directory.parent} "
                "and run `python -m transformer_mt.prepare` with this configuration"
            ) from error


def dtype_of(vocab_size: int) -> str:
    """Return the type of ids on disk, for a vocabulary of this size."""
    return _DTYPES[0] if vocab_size < 2**16 else _DTYPES[1]


def places_of_pairs(data_dir: Path, pairs: NDArray[np.int64]) -> list[Place]:
    """Return where these pairs of the training set are in the text. Raises CorpusError if they cannot be read."""
    directory = data_dir / "train"
    source = EncodedCorpus.load(directory).source
    shards = [directory / shard for shard in ShardIndex.load(directory).shards]
    where, rows = source.rows(pairs) if isinstance(source, ShardedText) else (np.zeros_like(pairs), pairs)
    places = list[Place]()
    for shard, row in zip((shards[number] for number in where.tolist()), rows.tolist(), strict=True):
        files: list[tuple[str, int]] = read_json(shard / RECORD)["files"]
        file, _ = files[bisect_right([first for _, first in files], row) - 1]
        places.append((file, int(np.fromfile(shard / LINES, "<i8", count=1, offset=8 * row)[0])))
    return places


def described(places: list[Place]) -> str:
    """Return places as text, such as "lines 3, 17 of a.en; line 8 of b.en"; only the first twenty."""
    of_files = []
    for file, of_file in groupby(sorted(places)[:_SHOWN], lambda place: place[0]):
        lines = [str(line) for _, line in of_file]
        of_files.append(f"line{'s' if len(lines) > 1 else ''} {', '.join(lines)} of {file}")
    return "; ".join(of_files) + (f", and {len(places) - _SHOWN} more" if len(places) > _SHOWN else "")


def _load_sides(directory: Path) -> Iterator[EncodedText]:
    sizes = read_json(directory / SIZES)
    for side in ("source", "target"):
        if sizes[side]["dtype"] not in _DTYPES:
            raise ValueError(f"{SIZES} has another type than {' or '.join(_DTYPES)}")
        ids = _map(directory / f"{side}.ids", np.dtype(sizes[side]["dtype"]), sizes[side]["tokens"])
        yield EncodedText(ids, _map(directory / f"{side}.offsets", np.dtype(np.int64), sizes["pairs"] + 1))


def _map(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    expected, found = count * dtype.itemsize, path.stat().st_size
    if found != expected:
        raise ValueError(f"{path.name} has {found:,} bytes instead of {expected:,}")
    if count == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    # A plain array over the map, because indexing np.memmap itself is slower.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
