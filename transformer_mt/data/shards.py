"""Writes a part of the training text (a shard) as token ids, whole or not at all, and finds those that are there.

A shard is a directory. Its record says what it was made of, so that a rerun knows whether it can stay.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from transformer_mt.corpora.corpus import Block
from transformer_mt.corpora.held_out import Overlaps
from transformer_mt.data.block_encoding import EncodedBlock
from transformer_mt.data.data_directory import writing
from transformer_mt.data.encoded import FILES, LINES, RECORD
from transformer_mt.data.encoded_files import EncodedWriter, put_in_place
from transformer_mt.data.line_words import LineWords
from transformer_mt.storage.checksums import fault, sums_of, write_sums
from transformer_mt.storage.files import own_name
from transformer_mt.storage.json_text import read_json

WORDS, KEYS = "words.json", "keys"
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
    every: int
    """The sentences of every so many-th block were counted, in words.json."""
    files: tuple[tuple[str, int], ...]
    """The files that it was made of, and the first of its pairs from each."""
    found: tuple[tuple[str, str, int, str], ...]
    """Lines of the held-out sets that are in it, as Overlaps.found has them: set, kind, line, place."""
    text: str
    """The digest of the blocks of which it was made (`text_digest`)."""


def whole_shards(directory: Path, key_of: Callable[[int], str]) -> list[ShardRecord]:
    """Return the records of the first shards in a directory that are whole and have the keys that they should have."""
    records: list[ShardRecord] = []
    while not records or not records[-1].is_last:
        shard = directory / shard_name(len(records))
        try:
            record = ShardRecord.model_validate(read_json(shard / RECORD))
        except (OSError, ValueError):
            break
        if record.key != key_of(len(records)) or fault(shard, SHARD_FILES) is not None:
            break
        records.append(record)
    return records


def shard_name(number: int) -> str:
    """Return the name of the directory of a shard."""
    return f"{number:05}"


def line_words(shard: Path) -> LineWords:
    """Read what was counted of the lines of a shard."""
    return LineWords.of(read_json(shard / WORDS))


def text_digest(digests: list[bytes]) -> str:
    """Return the digest of a text of which these are the digests of its blocks."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


class ShardWriter:
    """Writes a shard block by block. Until `finish`, it has a name that only this program uses."""

    def __init__(
        self,
        directory: Path,
        number: int,
        key: str,
        vocab_sizes: tuple[int, int],
        overlaps: Overlaps,
        with_keys: bool,
    ) -> None:
        self.shard, self.number, self.key = directory / shard_name(number), number, key
        self._overlaps, self._with_keys = overlaps, with_keys
        self._partial = directory / own_name(self.shard.name)
        self._words, self._dropped, self._read = LineWords(), Counter[str](), 0
        self._files: list[tuple[str, int]] = []
        self._digests: list[bytes] = []
        self._lines: list[NDArray[np.int64]] = []
        self._keys: list[bytes] = []
        with writing(self.shard):
            self._ids = EncodedWriter(self._partial, vocab_sizes)

    def add(self, text: Block, block: EncodedBlock) -> None:
        """Write what became of a block of text. Raises CorpusError if there is no room."""
        if not self._files or self._files[-1][0] != text.file:
            self._files.append((text.file, self._ids.num_pairs))
        with writing(self.shard):
            self._ids.add(block.source, block.target)
        self._lines.append(block.lines)
        self._keys.append(block.keys)
        self._digests.append(block.digest)
        self._read += len(text.pairs)
        self._dropped.update(block.dropped)
        self._words.merge(block.words)
        for place, source, target in block.found:
            self._overlaps.add(source, target, place)

    def finish(self, is_last: bool) -> ShardRecord:
        """Give the shard its name, in place of an older one. Raises CorpusError if there is no room."""
        record = ShardRecord(
            key=self.key,
            is_last=is_last,
            read=self._read,
            dropped=dict(sorted(self._dropped.items())),
            every=self.number + 1,
            files=tuple(self._files),
            found=tuple((*line, place) for line, place in sorted(self._overlaps.found.items())),
            text=text_digest(self._digests),
        )
        contents = {
            RECORD: _json(record.model_dump(mode="json")),
            WORDS: _json(self._words.content),
            LINES: np.concatenate(self._lines).tobytes(),
            **({KEYS: b"".join(self._keys)} if self._with_keys else {}),
        }
        with writing(self.shard):
            self._ids.finish()
            for name, content in contents.items():
                (self._partial / name).write_bytes(content)
            write_sums(self._partial, sums_of(self._partial, (*FILES, *contents)))
            put_in_place(self._partial, self.shard)
        return record

    def abandon(self) -> None:
        """Remove what was written."""
        self._ids.abandon()


def _json(content: Any) -> bytes:
    return (json.dumps(content, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
