"""Encodes the pairs of blocks, and writes them as a part of the training set (a shard).

A shard is a directory. Its record says from what it was made, so that a rerun knows whether to keep it.
"""

import hashlib
import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from pydantic import BaseModel, ConfigDict

from transformer_mt.base.errors import CorpusError
from transformer_mt.batches.encoded import FILES, IDS, LINES, RECORD, SIZES, EncodedText, dtype_of, encoded_text
from transformer_mt.corpora.corpus import BadPair, Block
from transformer_mt.corpora.filters import Languages, PieceFilters, TextFilters
from transformer_mt.corpora.repeated import Overlaps, pair_key
from transformer_mt.storage.checksums import write_sums
from transformer_mt.storage.files import own_name, read_json, writing_to
from transformer_mt.text.tokenizer import Tokenizer, clean
from transformer_mt.text.training_lines import count_sentences


def writing(path: Path) -> AbstractContextManager[None]:
    """Turn an OSError while writing a part of a data_dir into a CorpusError that names `path`."""
    return writing_to(path, CorpusError, "and give the same command again: it keeps the parts that are complete")


class EncodedWriter:
    """Writes pairs into a new directory, block by block."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._stack, self.num_pairs = directory, ExitStack(), 0
        self._sides: list[dict[str, Any]] = [{"dtype": "", "tokens": 0} for _ in ("source", "target")]
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._files = [self._stack.enter_context((directory / name).open("wb")) for name in IDS]
        for offsets in self._files[1::2]:
            offsets.write(np.zeros(1, np.int64).data)

    def add(self, *sides: EncodedText) -> None:
        for side, written, ids_file, offsets_file in zip(
            sides, self._sides, self._files[::2], self._files[1::2], strict=True
        ):
            # Not by NumPy's `tofile`, which gives no error if the disk is full.
            ids_file.write(side.ids.data)
            offsets_file.write((side.offsets[1:] + written["tokens"]).data)
            written["tokens"] += side.num_tokens
            written["dtype"] = str(side.ids.dtype)
        self.num_pairs += len(sides[0])

    def finish(self) -> None:
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
    writer = EncodedWriter(partial := directory.with_name(own_name(directory.name)))
    try:
        writer.add(*map(encoded_text, sides, map(dtype_of, sizes)))
        writer.finish()
        # The name of the directory never belongs to an incomplete one.
        old = directory.with_name(own_name(f"{directory.name}.old"))
        shutil.rmtree(old, ignore_errors=True)
        if directory.exists():
            if not (directory / SIZES).is_file():
                raise CorpusError(f"{directory}: exists, and `prepare` did not write it; choose another data_dir")
            os.replace(directory, old)
            shutil.rmtree(old)
        os.replace(partial, directory)
    except BaseException:
        writer.abandon()
        raise


Found = tuple[str, str, str]
"""Place, source and target of a pair; the texts are as `clean` returns them."""


class Task(NamedTuple):
    """A block to encode, with the tag and the languages of its corpus."""

    block: Block
    tag: str
    """The token before each source; may be empty."""
    languages: Languages
    shard: int
    """The number of the shard that it belongs to."""


@dataclass(frozen=True)
class EncodedBlock:
    source: EncodedText
    target: EncodedText
    """With `source`, the pairs that stay."""
    contents: dict[str, bytes]
    """What the files of a shard get for these pairs. LINES: their lines, rows or units in the file, int64; SENTENCES:
    how many sentences each source has, int32; if filters.duplicates is on, KEYS: their keys, one after another."""
    dropped: Counter[str]
    """How many pairs were left out for each reason."""
    found: list[Found]
    """The pairs that contain a text of the held-out sets: those that were left out because of it if filters.held_out is
    on, otherwise those that stay."""
    digest: bytes
    """The result of `block_digest`."""


@dataclass(frozen=True)
class BlockEncoder:
    """Filters and encodes blocks. The result depends only on the task, not on the process or on earlier tasks."""

    tokenizer: Tokenizer
    texts: TextFilters
    pieces: PieceFilters

    def encode(self, task: Task) -> EncodedBlock:
        """Filter and encode a block. Raises CorpusError at an unreadable pair, unless filters.on_bad_line is skip."""
        block, dropped, found = task.block, Counter[str](), list[Found]()
        texts = list(self._passed_by_text(task, dropped, found))
        tagged = [f"{task.tag} {source}" if task.tag else source for _, source, _ in texts]
        source_ids, target_ids = self.tokenizer.encode_cleaned(tagged, [target for _, _, target in texts])
        both = zip(source_ids, target_ids, strict=True)
        reasons = [self.pieces.reason(len(source) - 1, len(target) - 1) for source, target in both]
        dropped.update(reason for reason in reasons if reason)
        stays = [reason is None for reason in reasons]
        texts, tagged = list(compress(texts, stays)), list(compress(tagged, stays))
        source_ids, target_ids = list(compress(source_ids, stays)), list(compress(target_ids, stays))
        if not self.texts.settings.held_out:
            held = self.texts.held_out
            found += [(block.place(row), a, b) for row, a, b in texts if a in held or b in held]
        sentences = count_sentences((source for _, source, _ in texts), task.languages[0])
        contents = {
            LINES: np.array([block.first + row for row, _, _ in texts], np.int64).tobytes(),
            SENTENCES: np.array(sentences, np.int32).tobytes(),
        }
        if self.texts.settings.duplicates:
            contents[KEYS] = b"".join(map(pair_key, tagged, (target for _, _, target in texts)))
        source = encoded_text(source_ids, dtype_of(self.tokenizer.source_vocab_size))
        target = encoded_text(target_ids, dtype_of(self.tokenizer.target_vocab_size))
        return EncodedBlock(source, target, contents, dropped, found, block_digest(block))

    def _passed_by_text(self, task: Task, dropped: Counter[str], found: list[Found]) -> Iterator[tuple[int, str, str]]:
        """Yield the pairs that pass the text filters: the row in the block, and source and target after `clean`."""
        block = task.block
        if self.texts.settings.on_bad_line == "stop":
            block.check()
        for row, pair in enumerate(block.pairs):
            if isinstance(pair, BadPair):
                dropped[pair.reason] += 1
                continue
            source, target = clean(pair[0]), clean(pair[1])
            if reason := self.texts.reason(source, target, task.languages):
                dropped[reason] += 1
                if reason == "held_out" and not self.texts.is_of_held_share(source, target, task.languages):
                    found.append((block.place(row), source, target))
            else:
                yield row, source, target


def block_digest(block: Block) -> bytes:
    """Return the SHA-256 of the pairs of a block, bad pairs included."""
    sides = chain.from_iterable((pair.fault,) if isinstance(pair, BadPair) else pair for pair in block.pairs)
    return hashlib.sha256("\n".join(sides).encode()).digest()


KEYS, SENTENCES = "keys", "sentences"
SHARD_FILES = (*FILES, RECORD, LINES, KEYS, SENTENCES)


class ShardRecord(BaseModel):
    """A description of a shard, which is stored in the shard."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    key: str
    """A hash of everything that the content of the shard depends on."""
    is_last: bool
    """Whether this is the last shard of its corpus."""
    read: int
    """How many pairs of the text were read for the shard."""
    dropped: dict[str, int]
    """How many of these pairs were left out for each reason."""
    files: tuple[tuple[str, int], ...]
    """The files that were read for the shard, each with the number of its first pair in the shard, from 0."""
    found: tuple[tuple[str, str, int, str], ...]
    """Lines of the held-out sets that are also in this text, as in Overlaps.found: set, kind, line, place."""
    text: str
    """The digest of the blocks from which the shard was made (`text_digest`)."""


def read_record(shard: Path, key: str) -> ShardRecord | None:
    """Return the record of a shard; None if the shard is missing, or was made with another key."""
    with suppress(OSError, ValueError):
        record = ShardRecord.model_validate(read_json(shard / RECORD))
        return record if record.key == key else None
    return None


def discard(shard: Path) -> None:
    """Remove a shard in one step, as far as others see. Raises OSError, also if another process has just done so."""
    partial = shard.with_name(own_name(f"{shard.name}{uuid4().hex}"))
    os.rename(shard, partial)
    shutil.rmtree(partial, ignore_errors=True)


def shard_name(number: int) -> str:
    return f"{number:05}"


def text_digest(digests: list[bytes]) -> str:
    """Return the digest of a text, given the digests of its blocks."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


class ShardWriter:
    """Writes a shard block by block. Until `finish`, its directory has a temporary name."""

    def __init__(self, shard: Path, key: str, overlaps: Overlaps) -> None:
        self.shard, self.key, self._overlaps = shard, key, overlaps
        # Another process may make the same shard, after this one did not show for some time that it lives.
        self._partial = shard.with_name(own_name(f"{shard.name}{uuid4().hex}"))
        self._dropped, self._read = Counter[str](), 0
        self._files: list[tuple[str, int]] = []
        self._digests: list[bytes] = []
        self._contents = defaultdict[str, bytearray](bytearray)
        with writing(self.shard):
            self.ids = EncodedWriter(self._partial)

    def add(self, text: Block, block: EncodedBlock) -> None:
        """Write the result of encoding a block of text. Raises CorpusError if the disk is full."""
        if not self._files or self._files[-1][0] != text.file:
            self._files.append((text.file, self.ids.num_pairs))
        with writing(self.shard):
            self.ids.add(block.source, block.target)
        for name, content in block.contents.items():
            self._contents[name] += content
        self._digests.append(block.digest)
        self._read += len(text.pairs)
        self._dropped.update(block.dropped)
        for place, source, target in block.found:
            self._overlaps.add(source, target, place)

    def finish(self, is_last: bool) -> ShardRecord:
        """Give the shard its final name, unless another process has made it. Raises CorpusError if the disk is full."""
        record = ShardRecord(
            key=self.key,
            is_last=is_last,
            read=self._read,
            dropped=dict(sorted(self._dropped.items())),
            files=tuple(self._files),
            found=tuple((*line, place) for line, place in sorted(self._overlaps.found.items())),
            text=text_digest(self._digests),
        )
        contents: dict[str, bytes | bytearray] = {RECORD: (record.model_dump_json() + "\n").encode(), **self._contents}
        with writing(self.shard):
            self.ids.finish()
            for name, content in contents.items():
                (self._partial / name).write_bytes(content)
            write_sums(self._partial, (*FILES, *contents))
            for is_last_try in (False, False, True):  # another process may be replacing the same outdated shard
                try:
                    os.rename(self._partial, self.shard)
                    break
                except OSError:
                    existing = read_record(self.shard, self.key)
                    if existing == record:
                        self.ids.abandon()
                        break
                    if existing is not None or is_last_try:
                        raise
                    with suppress(FileNotFoundError):
                        discard(self.shard)
        return record
