"""Writes a part of the training text (a shard) as token ids, whole or not at all, and finds those that are there.

A shard is a directory. Its record says what it was made of, so that a rerun knows whether it can stay.
"""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from transformer_mt.corpora.corpus import BadPair, Block
from transformer_mt.corpora.held_out import Overlaps
from transformer_mt.data.block_encoding import EncodedBlock, Side
from transformer_mt.data.data_directory import writing
from transformer_mt.data.encoded import FILES, SIZES
from transformer_mt.data.line_words import LineWords
from transformer_mt.errors import UserError
from transformer_mt.storage.checksums import SUMS, fault, write_sums
from transformer_mt.storage.files import own_name
from transformer_mt.storage.json_text import read_json

RECORD, WORDS, LINES, KEYS = "shard.json", "words.json", "lines", "keys"
SHARD_FILES = (*FILES, RECORD, WORDS, LINES, KEYS)


class ShardRecord(BaseModel):
    """What is in a shard."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    key: str
    """A hash of everything that its content depends on."""
    is_last: bool
    """Whether the corpus ends with it."""
    read: int
    """How many pairs of the text it was made of."""
    dropped: dict[str, int]
    """How many of them were left out for each reason."""
    pairs: int
    tokens: tuple[int, int]
    """Of source and target, EOS included."""
    longest: tuple[int, int]
    every: int
    """The sentences of every so many-th pair were counted, in words.json."""
    files: tuple[tuple[str, int], ...]
    """The files that it was made of, and the first of its pairs from each."""
    found: tuple[tuple[str, str, int, str], ...]
    """Lines of the held-out sets that are in it, as Overlaps.found has them: set, kind, line, place."""
    text: str
    """The digest of the pairs of which it was made (`TextDigest`)."""


def whole_shards(directory: Path, key_of: Callable[[int], str]) -> list[ShardRecord]:
    """Return the records of the first shards in a directory that are whole and have the keys that they should have."""
    records: list[ShardRecord] = []
    while not records or not records[-1].is_last:
        record = _record(directory / shard_name(len(records)))
        if record is None or record.key != key_of(len(records)):
            break
        records.append(record)
    return records


def shard_name(number: int) -> str:
    """Return the name of the directory of a shard."""
    return f"{number:05}"


class TextDigest:
    """The SHA-256 of the pairs of blocks, bad ones included."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()

    def add(self, block: Block) -> None:
        """Hash the next block."""
        sides = chain.from_iterable((pair.fault,) if isinstance(pair, BadPair) else pair for pair in block.pairs)
        self._sum.update("\n".join([*sides, ""]).encode())

    @property
    def hex(self) -> str:
        """The digest of all blocks so far, hexadecimal."""
        return self._sum.hexdigest()


def line_words(shard: Path) -> LineWords:
    """Read what was counted of the lines of a shard."""
    return LineWords.of(read_json(shard / WORDS))


def shard_record(shard: Path) -> ShardRecord:
    """Read the record of a shard. Raises OSError or ValueError if it cannot be read."""
    return ShardRecord.model_validate(read_json(shard / RECORD))


def _record(shard: Path) -> ShardRecord | None:
    """Return the record of a shard; None if it is missing, or any of its files is not as it was written."""
    try:
        record = shard_record(shard)
    except (OSError, ValueError):
        return None
    return record if fault(shard, SHARD_FILES) is None else None


class ShardWriter:
    """Writes a shard block by block. Until `finish`, it has a name that only this program uses."""

    def __init__(
        self, directory: Path, number: int, key: str, dtypes: tuple[str, str], overlaps: Overlaps, with_keys: bool
    ) -> None:
        self.shard, self.key, self.every = directory / shard_name(number), key, number + 1
        self._partial = directory / own_name(self.shard.name)
        self._overlaps, self._words = overlaps, LineWords()
        self._files: list[tuple[str, int]] = []
        self._read = self._pairs = 0
        self._text = TextDigest()
        self._dropped: Counter[str] = Counter()
        self._open: dict[str, _SummedFile] = {}
        with writing(self.shard):
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir(parents=True)
            self._source = _SideWriter(self._new("source.ids"), self._new("source.offsets"), dtypes[0])
            self._target = _SideWriter(self._new("target.ids"), self._new("target.offsets"), dtypes[1])
            self._lines, self._keys = self._new(LINES), self._new(KEYS) if with_keys else None

    def add(self, text: Block, block: EncodedBlock) -> None:
        """Write what became of a block of text. Raises CorpusError if there is no room."""
        if not self._files or self._files[-1][0] != text.file:
            self._files.append((text.file, self._pairs))
        self._text.add(text)
        with writing(self.shard):
            self._source.add(block.source)
            self._target.add(block.target)
            self._lines.write(block.lines)
            if self._keys is not None:
                self._keys.write(np.frombuffer(block.keys, np.uint8))
        self._read += block.num_read
        self._pairs += len(block.lines)
        self._dropped.update(block.dropped)
        self._words.add(block.looked_at)
        for place, source, target in block.found:
            self._overlaps.add(source, target, place)

    def finish(self, is_last: bool) -> ShardRecord:
        """Give the shard its name, in place of an older one. Raises CorpusError if there is no room."""
        record = ShardRecord(
            key=self.key,
            is_last=is_last,
            read=self._read,
            dropped=dict(sorted(self._dropped.items())),
            pairs=self._pairs,
            tokens=(self._source.tokens, self._target.tokens),
            longest=(self._source.longest, self._target.longest),
            every=self.every,
            files=tuple(self._files),
            found=tuple((*line, place) for line, place in sorted(self._overlaps.found.items())),
            text=self._text.hex,
        )
        sides = {"source": self._source.size, "target": self._target.size}
        with writing(self.shard):
            self._new(SIZES).write(_json({"pairs": self._pairs, **sides}, indent=2))
            self._new(WORDS).write(_json(self._words.content))
            self._new(RECORD).write(_json(record.model_dump(mode="json")))
            write_sums(self._partial, {name: file.close() for name, file in self._open.items()})
            if self.shard.exists():
                _remove(self.shard)
            os.replace(self._partial, self.shard)
        return record

    def abandon(self) -> None:
        """Remove what was written."""
        for file in self._open.values():
            file.abandon()
        shutil.rmtree(self._partial, ignore_errors=True)

    def _new(self, name: str) -> "_SummedFile":
        self._open[name] = _SummedFile(self._partial / name)
        return self._open[name]


class _SummedFile:
    """A file whose checksum is computed while it is written."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._sum = hashlib.sha256()

    def write(self, values: NDArray[Any]) -> None:
        content = values.data.cast("B") if len(values) else b""
        self._file.write(content)
        self._sum.update(content)

    def close(self) -> str:
        """Write what is left; the checksum."""
        self._file.close()
        return self._sum.hexdigest()

    def abandon(self) -> None:
        """Close it, though what is left may have no room."""
        try:
            self._file.close()
        except OSError:
            return


class _SideWriter:
    """Writes the ids of one language, and where each sentence begins."""

    def __init__(self, ids: _SummedFile, offsets: _SummedFile, dtype: str) -> None:
        self._ids, self._offsets, self._dtype = ids, offsets, dtype
        self.tokens = self.longest = 0
        offsets.write(np.zeros(1, np.int64))

    def add(self, side: Side) -> None:
        self._ids.write(side.ids.astype(self._dtype, copy=False))
        self._offsets.write(side.lengths.cumsum() + self.tokens)
        self.tokens += len(side.ids)
        self.longest = max(self.longest, int(side.lengths.max(initial=0)))

    @property
    def size(self) -> dict[str, Any]:
        return {"dtype": self._dtype, "tokens": self.tokens}


def _remove(shard: Path) -> None:
    """Remove an older shard, at no instant leaving a part of it under its name."""
    if not (shard / SUMS).is_file():
        raise UserError(f"{shard} is in the way, and prepare did not write it: move it away")
    old = shard.with_name(own_name(f"{shard.name}.old"))
    shutil.rmtree(old, ignore_errors=True)
    os.replace(shard, old)
    shutil.rmtree(old)


def _json(content: Any, indent: int | None = None) -> NDArray[np.uint8]:
    text = json.dumps(content, ensure_ascii=False, indent=indent) + "\n"
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
