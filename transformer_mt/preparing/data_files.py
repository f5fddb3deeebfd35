"""Makes and locks a data_dir, and writes directories of token ids that appear only when they are complete."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_mt.base.errors import ConfigError, CorpusError
from transformer_mt.batches.encoded import IDS, SIZES, dtype_of
from transformer_mt.corpora.opening import corpus_files
from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.storage.files import cure, own_name
from transformer_mt.storage.own_directory import Owner, hold

OWNER = Owner("prepare", "prepares data here", "choose another data_dir")


@contextmanager
def hold_data_dir(directory: Path, texts: Iterable[PairedText]) -> Iterator[None]:
    """Make a data_dir, or reuse one that a killed process left, and lock it so that no other process writes to it.

    Raises ConfigError if it cannot be made; CorpusError or DirectoryError if the program could overwrite a file of the
    user, or if another process holds the lock.
    """
    _check_outside(directory, texts)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"data_dir={directory}: cannot be made ({error.strerror}); set another data_dir") from None
    with hold(directory, OWNER):
        for path in sorted(directory.rglob("*")):
            if path.is_symlink():  # `prepare` would write to the target of the link
                raise CorpusError(
                    f"{path}: is a link that `prepare` did not make; move it away, or choose another data_dir"
                )
        yield


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError while writing a part of a data_dir into a CorpusError that names `path`."""
    try:
        yield
    except OSError as error:
        raise CorpusError(
            f"{path}: cannot be written ({error.strerror or error}); {cure(error)}, and give the same command again: "
            "it keeps the parts that are complete"
        ) from None


def _check_outside(directory: Path, texts: Iterable[PairedText]) -> None:
    """Raises CorpusError if a file of the corpus is in the directory, where `prepare` could overwrite it."""
    for path in [path for text in texts if text.share is None for path in corpus_files(text)]:
        if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory)):
            raise CorpusError(
                f"{path}: this file of the corpus is in data_dir={directory}, where `prepare` could overwrite it; "
                "choose another data_dir"
            )


class Side(NamedTuple):
    """Sentences of one language, stored one after the other."""

    ids: NDArray[Any]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], vocab_size: int) -> "Side":
        """Store these sentences one after the other."""
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
            # Not by NumPy's `tofile`, which gives no error if the disk is full.
            ids_file.write(ids.data)
            offsets_file.write((lengths.cumsum() + written["tokens"]).data)
            written["tokens"] += len(ids)
        self.num_pairs += len(sides[0].lengths)

    def finish(self) -> None:
        """Flush and close the files, and write the sizes of all."""
        self._stack.close()
        sizes = {"pairs": self.num_pairs, "source": self._sides[0], "target": self._sides[1]}
        (self._directory / SIZES).write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")

    def abandon(self) -> None:
        """Remove what was written."""
        with suppress(OSError):  # the disk may be too full to flush the files
            self._stack.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def write_encoded(
    directory: Path, rows: Iterable[tuple[list[int], list[int]]], source_vocab_size: int, target_vocab_size: int
) -> None:
    """Write the ids of at least one pair, in place of an older directory. Raises CorpusError if that is not ours."""
    sizes, sides = (source_vocab_size, target_vocab_size), list(zip(*rows, strict=True))
    assert sides, "a corpus without pairs cannot be memory-mapped"
    writer = EncodedWriter(partial := directory.with_name(own_name(directory.name)), sizes)
    try:
        writer.add(*map(Side.of, sides, sizes))
        writer.finish()
        put_in_place(partial, directory)
    except BaseException:
        writer.abandon()
        raise


def put_in_place(partial: Path, directory: Path) -> None:
    """Rename a complete directory to its final name. This name never belongs to an incomplete directory."""
    old = directory.with_name(own_name(f"{directory.name}.old"))
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        if not (directory / SIZES).is_file():
            raise CorpusError(f"{directory}: exists, and `prepare` did not write it; choose another data_dir")
        os.replace(directory, old)
        shutil.rmtree(old)
    os.replace(partial, directory)
