"""Opens the token ids that `prepare` wrote, as memory maps: of one directory, or of a training set in shards."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from transformer_mt.data.encoded_text import EncodedText, ShardedText, Text
from transformer_mt.errors import CorpusError
from transformer_mt.storage.json_text import read_json

SIZES = "sizes.json"
IDS = ("source.ids", "source.offsets", "target.ids", "target.offsets")
FILES = (*IDS, SIZES)
INDEX, KEPT = "shards.json", "kept.rows"  # of a training set
RECORD, LINES = "shard.json", "lines"  # of a shard
_DTYPES = ("uint16", "uint32")
_SHOWN = 20  # places of pairs

Place = tuple[str, int]  # the file, and the line, row or unit in it from 1


class ShardIndex(BaseModel):
    """The list of the shards of a training set, by which training opens all of them as one corpus."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    shards: tuple[str, ...] = Field(min_length=1)
    """Their directories, from that of the index, in the order of the configuration."""
    sizes: tuple[int, ...]
    """How many pairs of each corpus belong to the training set."""
    tokens: tuple[int, int]
    """The tokens of these pairs, EOS included, in source and target."""
    longest: tuple[int, int]
    """The tokens of the longest sentence."""
    has_kept: bool
    """Whether the file KEPT lists the pairs that belong to the training set, numbered through all shards, as int64. If
    not, all do."""

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
                return cls(*_load_sides(directory))
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
                f"{directory}: is missing, or not as it was written ({error}); delete {directory.parent} and "
                "run `python -m transformer_mt.prepare` with this configuration"
            ) from error


def dtype_of(vocab_size: int) -> str:
    """Return the type in which the ids of a vocabulary are stored."""
    return _DTYPES[0] if vocab_size < 2**16 else _DTYPES[1]


def places_of_pairs(data_dir: Path, pairs: NDArray[np.int64]) -> list[Place]:
    """Return where these pairs of the training set stand in the text. Raises CorpusError if they cannot be read."""
    directory = data_dir / "train"
    source = EncodedCorpus.load(directory).source
    shards = [directory / shard for shard in ShardIndex.load(directory).shards]
    where, rows = source.rows(pairs) if isinstance(source, ShardedText) else (np.zeros_like(pairs), pairs)
    return [_place(shards[shard], row) for shard, row in zip(where.tolist(), rows.tolist(), strict=True)]


def _place(shard: Path, row: int) -> Place:
    files: list[tuple[str, int]] = read_json(shard / RECORD)["files"]
    file, _ = files[bisect_right([first for _, first in files], row) - 1]
    line = np.fromfile(shard / LINES, "<i8", count=1, offset=8 * row)
    return file, int(line[0])


def described(places: list[Place]) -> str:
    """Return places as text, as in "lines 3, 17 of a.en; line 8 of b.en"; of many, the first twenty."""
    of_files = []
    for file, of_file in groupby(sorted(places)[:_SHOWN], lambda place: place[0]):
        lines = [str(line) for _, line in of_file]
        of_files.append(f"line{'s' if len(lines) > 1 else ''} {', '.join(lines)} of {file}")
    return "; ".join(of_files) + (f", and {len(places) - _SHOWN} more" if len(places) > _SHOWN else "")


def _load_sides(directory: Path) -> tuple[EncodedText, EncodedText]:
    sizes = read_json(directory / SIZES)
    return _load_side(directory, "source", sizes), _load_side(directory, "target", sizes)


def _load_side(directory: Path, side: str, sizes: dict[str, Any]) -> EncodedText:
    if sizes[side]["dtype"] not in _DTYPES:
        raise ValueError(f"{SIZES} names another type than {' or '.join(_DTYPES)}")
    ids = _map(directory / f"{side}.ids", np.dtype(sizes[side]["dtype"]), sizes[side]["tokens"])
    return EncodedText(ids, _map(directory / f"{side}.offsets", np.dtype(np.int64), sizes["pairs"] + 1))


def _map(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    expected, found = count * dtype.itemsize, path.stat().st_size
    if found != expected:
        raise ValueError(f"{path.name} has {found:,} bytes instead of {expected:,}")
    if count == 0:  # no file of no bytes can be mapped
        return np.empty(0, dtype)
    # A plain array over the map, because indexing np.memmap itself is slower.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
