"""Finds duplicates in the training text, and training pairs that are also in the validation or test sets."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transformer_mt.base.wording import counted

_SHOWN = 3  # example lines of each set
KINDS = {"sources": "source", "targets": "target", "pairs": "complete pair"}


class HeldOut:
    """The sources and targets of validation and test sets, as `clean` returns them. Blank texts are left out."""

    def __init__(self, sets: Mapping[str, Iterable[tuple[str, str]]]) -> None:
        """Collect the texts of these sets, given by name. The texts are results of `clean`."""
        self.sizes = dict.fromkeys(sets, 0)  # how many pairs each set has
        # For each text, the sets that contain it, and its lines there, from 1.
        self.sources, self.targets = dict[str, list[tuple[str, int]]](), dict[str, list[tuple[str, int]]]()
        for name, pairs in sets.items():
            for line, (source, target) in enumerate(pairs, start=1):
                self.sizes[name] = line
                for text, lines in ((source, self.sources), (target, self.targets)):
                    if text:
                        lines.setdefault(text, []).append((name, line))


@dataclass
class Overlaps:
    """Which lines of the validation and test sets are also in the training text, each with the first place there."""

    held: HeldOut
    found: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """The first place in the training text, by name of the set, kind (one of KINDS) and line."""

    def add(self, source: str, target: str, place: str) -> None:
        """Compare a pair of results of `clean`. A sentence counts on either side, because a corpus may be swapped."""
        sources = [line for text in {source, target} for line in self.held.sources.get(text, ())]
        targets = [line for text in {source, target} for line in self.held.targets.get(text, ())]
        for kind, lines in (("sources", sources), ("targets", targets), ("pairs", {*sources} & {*targets})):
            for name, line in lines:
                self.found.setdefault((name, kind, line), place)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """How many sources, targets and complete pairs of each set are also in the training text."""
        counts = {name: dict.fromkeys(KINDS, 0) for name in self.held.sizes}
        for name, kind, _ in self.found:
            counts[name][kind] += 1
        return counts

    def notes(self, left_out: bool) -> Iterator[str]:
        """Yield a note for each set that shares sentences with the training text, with the first places of these."""
        result = "; the training pairs with them are left out" if left_out else ", and stay there"
        for name, counts in self.counts.items():
            if kind := next((kind for kind in ("pairs", "sources", "targets") if counts[kind]), ""):
                found = sorted((line, place) for (*of, line), place in self.found.items() if of == [name, kind])
                places = ", ".join(f"line {line} is {place}" for line, place in found[:_SHOWN])
                numbers = ", ".join(counted(counts[kind], noun) for kind, noun in KINDS.items())
                yield (
                    f"note: {name}: of {counted(self.held.sizes[name], 'pair')}, these are also in the training text"
                    f"{result}: {numbers}. The first by their {kind[:-1]}: {places}"
                )


KEY_BYTES = 16
MEMORY = 1 << 30  # bytes
_BYTES_PER_KEY = 100  # of memory, while a key is sorted
_READ_AT_A_TIME = 1 << 20  # keys
_KEY = np.dtype([("high", "<u8"), ("low", "<u8")])

Rows = NDArray[np.int64]


def pair_key(source: str, target: str) -> bytes:
    """Return the key of a pair: 16 bytes, which differ for different pairs.

    Among a billion different pairs, the probability that two have the same key is about 2e-21. The texts are results
    of `clean`, which have no line breaks; the source begins with its tag, if there is one.
    """
    return hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=KEY_BYTES).digest()


def find_duplicates(files: Sequence[Path]) -> list[Rows]:
    """Return for each file of keys, in order, its rows that are duplicates, from 0 and ascending.

    A row is a duplicate if its key is in an earlier row or in an earlier file. The function reads the files several
    times, and each time sorts the keys of one range, in about MEMORY bytes, or more if most pairs are the same.
    """
    sizes = [path.stat().st_size // KEY_BYTES for path in files]
    num_ranges = 1 + sum(sizes) * _BYTES_PER_KEY // MEMORY
    found = [_found_in_range(files, number, num_ranges) for number in range(num_ranges)]
    bounds = np.cumsum([0, *sizes])
    rows = np.sort(np.concatenate(found))
    ends = np.searchsorted(rows, bounds)
    return [rows[start:end] - first for (start, end), first in zip(pairwise(ends), bounds.tolist(), strict=False)]


def _found_in_range(files: Sequence[Path], number: int, num_ranges: int) -> Rows:
    """Return the rows, counted through all files, that have a key of this range and repeat an earlier row."""
    keys, rows, first = [np.empty(0, _KEY)], [np.empty(0, np.int64)], 0
    for path in files:
        with path.open("rb") as file:
            while len(block := np.fromfile(file, _KEY, _READ_AT_A_TIME)):
                chosen = np.flatnonzero(block["high"] % np.uint64(num_ranges) == number)
                keys.append(block[chosen])
                rows.append(chosen + first)
                first += len(block)
    all_keys, all_rows = np.concatenate(keys), np.concatenate(rows)
    order = np.lexsort((all_keys["low"], all_keys["high"]))  # stable, so equal keys keep their order
    in_order = all_keys[order]
    found: Rows = all_rows[order[1:][in_order[1:] == in_order[:-1]]]
    return found
