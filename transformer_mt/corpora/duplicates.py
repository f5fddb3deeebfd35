"""Finds pairs that were there before, among a billion pairs, in bounded memory. Each pair has a key of 16 bytes."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KEY_BYTES = 16
MEMORY = 1 << 30  # bytes
_BYTES_PER_KEY = 100  # of memory, while a key is sorted
_READ_AT_A_TIME = 1 << 20  # keys
_KEY = np.dtype([("high", "<u8"), ("low", "<u8")])

Rows = NDArray[np.int64]


def pair_key(source: str, target: str) -> bytes:
    """Return the key of a pair: 16 bytes, which differ for different pairs.

    That two of a billion different pairs have the same key has a probability of 2e-21. The texts are as `clean` returns
    them, which leaves no line break in them; the source has its tag, if there is one.
    """
    return hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=KEY_BYTES).digest()


def find_duplicates(files: Sequence[Path], memory: int = MEMORY) -> list[Rows]:
    """Return for each file of keys, in order, the rows of it that were there before, from 0 and ascending.

    A row was there before if its key is in an earlier row, or in an earlier file. A file holds the keys of its pairs,
    one after another. The files are read several times, and each time the keys of one range are sorted, in about
    `memory` bytes; more if most pairs are the same one. The rows that are returned take 8 bytes each.
    """
    sizes = [path.stat().st_size // KEY_BYTES for path in files]
    num_ranges = 1 + sum(sizes) * _BYTES_PER_KEY // memory
    found = [_found_in_range(files, number, num_ranges) for number in range(num_ranges)]
    bounds = np.cumsum([0, *sizes])
    rows = np.sort(np.concatenate(found))
    ends = np.searchsorted(rows, bounds)
    return [rows[start:end] - first for (start, end), first in zip(pairwise(ends), bounds.tolist(), strict=False)]


def _found_in_range(files: Sequence[Path], number: int, num_ranges: int) -> Rows:
    """Return the rows, through all files, whose key is in this range and in an earlier row."""
    keys, rows, first = [np.empty(0, _KEY)], [np.empty(0, np.int64)], 0
    for path in files:
        with path.open("rb") as file:
            while len(block := np.fromfile(file, _KEY, _READ_AT_A_TIME)):
                chosen = np.flatnonzero(block["high"] % np.uint64(num_ranges) == number)
                keys.append(block[chosen])
                rows.append(chosen + first)
                first += len(block)
    all_keys, all_rows = np.concatenate(keys), np.concatenate(rows)
    order = np.lexsort((all_keys["low"], all_keys["high"]))  # stable, so the first of the same keys stays the first
    in_order = all_keys[order]
    found: Rows = all_rows[order[1:][in_order[1:] == in_order[:-1]]]
    return found
