"""Stores token ids on disk: `prepare` writes them, and `train` reads them as memory maps."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.encoded_text import EncodedText, Text
from transformer_mt.data.shard_index import INDEX, ShardIndex
from transformer_mt.errors import CorpusError
from transformer_mt.storage.json_text import read_json

SIZES = "sizes.json"
FILES = ("source.ids", "source.offsets", "target.ids", "target.offsets", SIZES)
_DTYPES = ("uint16", "uint32")
_BLOCK = 10_000  # pairs held in memory at a time


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
        """Open what `write_encoded` wrote, or the shards of a training set.

        Raises CorpusError if a file is missing or cut short.
        """
        try:
            if not (directory / INDEX).exists():
                return cls(*_load_sides(directory))
            index = ShardIndex.load(directory)
            sources, targets = zip(*(_load_sides(directory / shard.path) for shard in index.shards), strict=True)
            return cls(index.text(directory, 0, sources), index.text(directory, 1, targets), index.sizes)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorpusError(
                f"{directory}: is missing, or not as it was written ({error}); delete {directory.parent} and "
                "run `python -m transformer_mt.prepare` with this configuration"
            ) from error


def write_encoded(
    directory: Path,
    rows: Iterable[tuple[list[int], list[int]]],
    source_vocab_size: int,
    target_vocab_size: int,
) -> None:
    """Write the source and target ids of each pair; there must be at least one. Memory does not grow with their number.

    An older directory is deleted first, and the new one appears only when it is complete. Raises CorpusError if a
    directory is there that this function did not write.
    """
    if directory.exists() and not (directory / SIZES).is_file():
        raise CorpusError(f"{directory}: is in the way, and prepare did not write it; choose another data_dir")
    partial = directory.with_name(directory.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    if directory.exists():
        # It is renamed first: if deleting it is interrupted, what is left has a name that only this program uses.
        os.replace(directory, partial)
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    sizes: dict[str, Any] = {"pairs": 0}
    sizes["source"] = {"dtype": dtype_of(source_vocab_size), "tokens": 0}
    sizes["target"] = {"dtype": dtype_of(target_vocab_size), "tokens": 0}
    with (
        (partial / "source.ids").open("wb") as source_ids,
        (partial / "source.offsets").open("wb") as source_offsets,
        (partial / "target.ids").open("wb") as target_ids,
        (partial / "target.offsets").open("wb") as target_offsets,
    ):
        for offsets in (source_offsets, target_offsets):
            offsets.write(np.zeros(1, np.int64).data)
        for block in _blocks(rows):
            _append([source for source, _ in block], sizes["source"], source_ids, source_offsets)
            _append([target for _, target in block], sizes["target"], target_ids, target_offsets)
            sizes["pairs"] += len(block)
    assert sizes["pairs"], "a corpus of no pairs cannot be memory-mapped"
    (partial / SIZES).write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, directory)


def dtype_of(vocab_size: int) -> str:
    """Return the type in which the ids of a vocabulary are stored."""
    return _DTYPES[0] if vocab_size < 2**16 else _DTYPES[1]


def _blocks(rows: Iterable[tuple[list[int], list[int]]]) -> Iterator[list[tuple[list[int], list[int]]]]:
    remaining = iter(rows)
    while block := list(islice(remaining, _BLOCK)):
        yield block


def _append(sentences: list[list[int]], size: dict[str, Any], ids: BinaryIO, offsets: BinaryIO) -> None:
    ends = np.fromiter(accumulate(map(len, sentences)), np.int64, len(sentences))
    # Not by `tofile` of NumPy, which says nothing if the disk is full.
    ids.write(np.fromiter(chain.from_iterable(sentences), size["dtype"], ends[-1]).data)
    offsets.write((ends + size["tokens"]).data)
    size["tokens"] += int(ends[-1])


def _load_sides(directory: Path) -> tuple[EncodedText, EncodedText]:
    sizes = read_json(directory / SIZES)
    return _load_side(directory, "source", sizes), _load_side(directory, "target", sizes)


def _load_side(directory: Path, side: str, sizes: dict[str, Any]) -> EncodedText:
    if sizes[side]["dtype"] not in _DTYPES:
        raise ValueError(f"{SIZES} names another type than {' or '.join(_DTYPES)}")
    tokens, dtype, pairs = sizes[side]["tokens"], np.dtype(sizes[side]["dtype"]), sizes["pairs"]
    ids = _map(directory / f"{side}.ids", dtype, tokens)
    return EncodedText(ids, _map(directory / f"{side}.offsets", np.dtype(np.int64), pairs + 1))


def _map(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    expected, found = count * dtype.itemsize, path.stat().st_size
    if found != expected:
        raise ValueError(f"{path.name} has {found:,} bytes instead of {expected:,}")
    if count == 0:  # no file of no bytes can be mapped
        return np.empty(0, dtype)
    # A plain array over the map, because indexing np.memmap itself is slower.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
