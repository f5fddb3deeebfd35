"""Finds pairs that were there before, among a billion pairs, in bounded memory.

Each pair has a key of 16 bytes. Keys are sorted in pieces that fit into memory, and from each piece written to files by
their first bits, so that equal keys are in the same file; then each of these files is sorted.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transformer_mt.storage.own_directory import temporary_directory

KEY_BYTES = 16
MEMORY = 1 << 29  # bytes
_BYTES_PER_KEY = 100  # of memory, while a key is sorted with its row, and with what NumPy takes for sorting
_MOST_FILES = 4096
_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("row", "<i8")])
_KEY = np.dtype([("high", "<u8"), ("low", "<u8")])

Entries = NDArray[np.void]
Rows = NDArray[np.int64]


def pair_key(source: str, target: str) -> bytes:
    """Return the key of a pair: 16 bytes, which differ for different pairs.

    That two of a billion different pairs have the same key has a probability of 2e-21. The texts are as `clean` returns
    them, which leaves no line break in them; the source has its tag, if there is one.
    """
    return hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=KEY_BYTES).digest()


def find_duplicates(files: Sequence[Path], work: Path, memory: int = MEMORY) -> Iterator[Rows]:
    """Yield for each file of keys, in order, the rows of it that were there before, from 0 and ascending.

    A row was there before if its key is in an earlier row, or in an earlier file. A file holds the keys of its pairs,
    one after another. Temporary files, 32 bytes for each key, lie beside `work` under a name that only this program
    uses; what a killed process left there is deleted first. At most about `memory` bytes are taken, apart from the rows
    of one file. Raises OSError if the files cannot be written, and DirectoryError if another process writes them.
    """
    sizes = [path.stat().st_size // KEY_BYTES for path in files]
    at_once = max(1, memory // _BYTES_PER_KEY)
    # Twice as many as there have to be, because they are not equally large.
    bits = max(0, (2 * sum(sizes) // at_once).bit_length())
    bits = min(bits, _MOST_FILES.bit_length() - 1)
    with temporary_directory(work) as directory:
        _write_parts(files, sizes, directory, bits, at_once)
        for part in range(1 << bits):
            _write_rows_there_before(directory, part)
        yield from _rows_by_file(directory, sizes, bits)


def plain_duplicates(keys: Sequence[Sequence[bytes]]) -> list[list[int]]:
    """Return the rows that `find_duplicates` yields, for keys that fit into memory."""
    seen: set[bytes] = set()
    found = []
    for of_file in keys:
        rows = []
        for row, key in enumerate(of_file):
            if key in seen:
                rows.append(row)
            seen.add(key)
        found.append(rows)
    return found


def _write_parts(files: Sequence[Path], sizes: Sequence[int], directory: Path, bits: int, at_once: int) -> None:
    """Write each key with its row to the file of its first bits, without those that a piece has twice.

    So a pair that is there a million times does not make one of the files a million keys longer.
    """
    first_row = 0
    for path, size in zip(files, sizes, strict=True):
        with path.open("rb") as file:
            for start in range(0, size, at_once):
                keys = np.fromfile(file, _KEY, min(at_once, size - start))
                entries = _sorted(keys["high"], keys["low"], np.arange(len(keys)) + (first_row + start))
                again = _there_before(entries)
                _append(directory / "twice", np.sort(entries["row"][again]))
                _append_parts(directory, entries[~again], bits)
        first_row += size


def _append_parts(directory: Path, entries: Entries, bits: int) -> None:
    """Append sorted entries to the files of their first bits."""
    if not bits:
        _append(directory / "part-0", entries)
        return
    bounds = np.searchsorted(entries["high"] >> np.uint64(64 - bits), np.arange((1 << bits) + 1, dtype=np.uint64))
    for part in np.flatnonzero(np.diff(bounds)):
        _append(directory / f"part-{part}", entries[bounds[part] : bounds[part + 1]])


def _write_rows_there_before(directory: Path, part: int) -> None:
    path = directory / f"part-{part}"
    if not path.exists():
        return
    entries = np.fromfile(path, _ENTRY)
    path.unlink()
    entries = _sorted(entries["high"], entries["low"], entries["row"])
    _append(directory / f"rows-{part}", np.sort(entries["row"][_there_before(entries)]))


def _rows_by_file(directory: Path, sizes: Sequence[int], bits: int) -> Iterator[Rows]:
    paths = [directory / "twice", *(directory / f"rows-{part}" for part in range(1 << bits))]
    lists = [path for path in paths if path.exists()]
    first_row = 0
    for size in sizes:
        found = [_rows_between(path, first_row, first_row + size) for path in lists]
        yield np.sort(np.concatenate(found)) - first_row if found else np.zeros(0, np.int64)
        first_row += size


def _rows_between(path: Path, first: int, end: int) -> Rows:
    """Read those of ascending rows that are at least `first` and less than `end`."""
    rows = np.memmap(path, "<i8", "r")  # anew each time, because what was read of it would count as memory in use
    bounds = np.searchsorted(rows, [first, end])
    return np.array(rows[bounds[0] : bounds[1]])


def _sorted(high: NDArray[np.uint64], low: NDArray[np.uint64], rows: Rows) -> Entries:
    """Return entries by key, and those of the same key in the order in which they are given."""
    order = np.lexsort((low, high))
    entries = np.empty(len(order), _ENTRY)
    entries["high"], entries["low"], entries["row"] = high[order], low[order], rows[order]
    return entries


def _there_before(entries: Entries) -> NDArray[np.bool_]:
    """Whether each of sorted entries has the same key as the one before it."""
    same = np.zeros(len(entries), np.bool_)
    high, low = entries["high"], entries["low"]
    same[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    return same


def _append(path: Path, values: NDArray[np.generic]) -> None:
    if len(values):
        with path.open("ab") as file:
            file.write(values.data)  # `tofile` of NumPy says nothing if the disk is full
