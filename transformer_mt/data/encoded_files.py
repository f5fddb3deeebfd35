"""Writes token ids into files, whole or not at all, in the form that `EncodedCorpus.load` opens."""

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.encoded import IDS, SIZES, dtype_of
from transformer_mt.errors import CorpusError
from transformer_mt.storage.files import own_name

_BLOCK = 10_000  # pairs held in memory at a time


class Side(NamedTuple):
    """Sentences of one language, end to end."""

    ids: NDArray[Any]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], vocab_size: int) -> "Side":
        """Put these sentences end to end."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        return cls(np.fromiter(chain.from_iterable(sentences), dtype_of(vocab_size), int(lengths.sum())), lengths)


class EncodedWriter:
    """Writes pairs into a new directory, block by block."""

    def __init__(self, directory: Path, vocab_sizes: tuple[int, int]) -> None:
        self._directory, self._stack, self.num_pairs = directory, ExitStack(), 0
        self._sides: list[dict[str, Any]] = [{"dtype": dtype_of(size), "tokens": 0} for size in vocab_sizes]
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._files = [self._stack.enter_context((directory / name).open("wb")) for name in IDS]
        for offsets in self._files[1::2]:
            offsets.write(np.zeros(1, np.int64).data)

    def add(self, *sides: Side) -> None:
        """Write the source and target of the next pairs."""
        for (ids, lengths), written, ids_file, offsets_file in zip(
            sides, self._sides, self._files[::2], self._files[1::2], strict=True
        ):
            # Not by `tofile` of NumPy, which says nothing if the disk is full.
            ids_file.write(ids.data)
            offsets_file.write((lengths.cumsum() + written["tokens"]).data)
            written["tokens"] += len(ids)
        self.num_pairs += len(sides[0].lengths)

    def finish(self) -> None:
        """Write what is left, and how much it is."""
        self._stack.close()
        sizes = {"pairs": self.num_pairs, "source": self._sides[0], "target": self._sides[1]}
        (self._directory / SIZES).write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")

    def abandon(self) -> None:
        """Remove what was written."""
        with suppress(OSError):  # what is left may have no room
            self._stack.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def write_encoded(
    directory: Path,
    rows: Iterable[tuple[list[int], list[int]]],
    source_vocab_size: int,
    target_vocab_size: int,
) -> None:
    """Write the source and target ids of each pair; there must be at least one. Memory does not grow with their number.

    The directory appears, in place of an older one, only when it is complete. Raises CorpusError if a directory is
    there that `prepare` did not write.
    """
    sizes, remaining = (source_vocab_size, target_vocab_size), iter(rows)
    writer = EncodedWriter(partial := directory.with_name(own_name(directory.name)), sizes)
    try:
        while block := list(islice(remaining, _BLOCK)):
            writer.add(*map(Side.of, zip(*block, strict=True), sizes))
        assert writer.num_pairs, "a corpus of no pairs cannot be memory-mapped"
        writer.finish()
        put_in_place(partial, directory)
    except BaseException:
        writer.abandon()
        raise


def put_in_place(partial: Path, directory: Path) -> None:
    """Give a directory that is whole its name. At no instant does a part of it, or of an older one, have this name."""
    old = directory.with_name(own_name(f"{directory.name}.old"))
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        if not (directory / SIZES).is_file():
            raise CorpusError(f"{directory}: is in the way, and prepare did not write it; choose another data_dir")
        os.replace(directory, old)
        shutil.rmtree(old)
    os.replace(partial, directory)
