"""Finds where training pairs stand in the text: file, and line, row or unit."""

from bisect import bisect_right
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.encoded_text import ShardedText
from transformer_mt.data.shard_index import ShardIndex
from transformer_mt.data.shards import LINES, shard_record

Place = tuple[str, int]  # the file, and the line in it from 1
_SHOWN = 20


def places_of_pairs(data_dir: Path, pairs: NDArray[np.int64]) -> list[Place]:
    """Return where these pairs of the training set stand. Raises CorpusError if the data cannot be read."""
    directory = data_dir / "train"
    source = EncodedCorpus.load(directory).source
    shards = [directory / shard.path for shard in ShardIndex.load(directory).shards]
    where, rows = source.rows(pairs) if isinstance(source, ShardedText) else (np.zeros_like(pairs), pairs)
    return [_place(shards[shard], row) for shard, row in zip(where.tolist(), rows.tolist(), strict=True)]


def described(places: list[Place]) -> str:
    """Return places as text, as in "lines 3, 17 of a.en; line 8 of b.en"; of many, the first twenty."""
    shown = sorted(places)[:_SHOWN]
    more = f", and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return "; ".join(_lines(file, [line for _, line in of_file]) for file, of_file in groupby(shown, _file)) + more


def _file(place: Place) -> str:
    return place[0]


def _lines(file: str, lines: list[int]) -> str:
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))} of {file}"


def _place(shard: Path, row: int) -> Place:
    files = shard_record(shard).files
    file, _ = files[bisect_right([first for _, first in files], row) - 1]
    line = np.fromfile(shard / LINES, "<i8", count=1, offset=8 * row)
    return file, int(line[0])
