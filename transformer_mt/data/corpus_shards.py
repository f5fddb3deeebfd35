"""Makes the shards of one corpus: those that are not there yet."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from transformer_mt.corpora.corpus import Block, Corpus
from transformer_mt.corpora.filters import Languages
from transformer_mt.corpora.held_out import HeldOut, Overlaps
from transformer_mt.data.block_encoding import BlockEncoder, EncodedBlock, Task
from transformer_mt.data.data_directory import writing
from transformer_mt.data.encoded import dtype_of
from transformer_mt.data.shards import ShardRecord, ShardWriter, TextDigest, shard_name, whole_shards
from transformer_mt.errors import CorpusError
from transformer_mt.line_progress import LineProgress
from transformer_mt.wording import counted
from transformer_mt.worker_pool import Workers

_FORMAT = 2  # of a shard; with another one all shards are made anew
DONE_HERE = 20  # blocks; starting worker processes takes about as long as encoding these
ITEMS = 500_000  # pairs, bad ones included, after which a shard ends


@dataclass(frozen=True)
class TrainingCorpus:
    """A corpus of the training set."""

    name: str
    pairs: Corpus
    tag: str
    """What is put before each source; empty: nothing."""
    languages: Languages
    identity: str
    """A hash of its text and of how it is read."""


@dataclass(frozen=True)
class ShardMaker:
    """Makes the shards of corpora, each in a directory of its own."""

    directory: Path
    encoder: BlockEncoder
    workers: Workers[Task, EncodedBlock]
    settings: str
    """A hash of the settings that shards depend on: tokenizer, filters, lengths, language and held-out sets."""
    held_out: HeldOut
    items: int = field(default_factory=lambda: ITEMS)

    def shards(self, corpus: TrainingCorpus) -> list[ShardRecord]:
        """Make the shards of a corpus that are not there, and remove others. Returns the records of all, in order.

        Raises CorpusError if the text cannot be read or there is no room, and WorkerError.
        """
        directory = self.directory / corpus.name
        records = whole_shards(directory, lambda number: self._key(corpus, number))
        with writing(directory):
            directory.mkdir(exist_ok=True)
            _remove_all_but(directory, {shard_name(number) for number in range(len(records))})
        if not records or not records[-1].is_last:
            num_read = sum(record.read for record in records)
            if records:
                are = counted(len(records), "shard is", "shards are")
                print(f"{corpus.name}: {are} there already, of {counted(num_read, 'pair')}: going on", flush=True)
            blocks = _blocks_after(corpus, records)
            num_read, doing = sum(record.read for record in records), f"{corpus.name}: "
            with LineProgress(corpus.pairs.num_pairs, done_before=num_read, doing=doing, unit="pairs") as progress:
                tasks = _tasks(corpus, blocks, len(records), self.items)
                records += self._new_shards(corpus, directory, tasks, progress)
            with writing(directory):
                _remove_all_but(directory, {shard_name(number) for number in range(len(records))})
        return records

    def _new_shards(
        self, corpus: TrainingCorpus, directory: Path, tasks: Iterator[Task], progress: LineProgress
    ) -> Iterator[ShardRecord]:
        """Write the shards of these tasks."""
        writer: ShardWriter | None = None
        try:
            for task, block in self.workers.map(tasks, DONE_HERE):
                if task.first == 0:
                    if writer is not None:
                        yield writer.finish(is_last=False)
                    writer = self._writer(corpus, directory, task.every - 1)
                assert writer is not None, "the first task begins a shard"
                writer.add(task.block, block)
                progress.more(block.num_read)
            if writer is None:
                raise CorpusError(f"{corpus.name}: its text has changed while it was read; give the same command again")
            yield writer.finish(is_last=True)
            writer = None
        finally:
            if writer is not None:
                writer.abandon()

    def _writer(self, corpus: TrainingCorpus, directory: Path, number: int) -> ShardWriter:
        encoder = self.encoder
        sizes = encoder.tokenizer.source_vocab_size, encoder.tokenizer.target_vocab_size
        dtypes = dtype_of(sizes[0]), dtype_of(sizes[1])
        key, overlaps = self._key(corpus, number), Overlaps(self.held_out)
        return ShardWriter(directory, number, key, dtypes, overlaps, encoder.with_keys)

    def _key(self, corpus: TrainingCorpus, number: int) -> str:
        """Return a hash of everything on which a shard depends."""
        with_keys = self.encoder.with_keys
        parts = (_FORMAT, self.settings, corpus.identity, corpus.tag, corpus.languages, self.items, with_keys, number)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _blocks_after(corpus: TrainingCorpus, whole: list[ShardRecord]) -> Iterator[Block]:
    """Return the blocks of a corpus that come after the shards that are whole.

    The text of each shard that is whole is compared with what was read when it was made: its key names the text that
    was surveyed, and a process that was killed had not compared the two. Takes the first shard that differs, and those
    after it, out of `whole`.
    """
    blocks = corpus.pairs.blocks()
    for number, record in enumerate(whole):
        if not _is_made_of(record, blocks):
            print(f"{corpus.name}: its text had changed while it was read: making shard {number} again", flush=True)
            del whole[number:]
            return _blocks_after(corpus, whole)
    return blocks


def _tasks(corpus: TrainingCorpus, blocks: Iterator[Block], number: int, items: int) -> Iterator[Task]:
    """Return a task for each of the blocks; the first of them begins the shard with this number.

    Which pairs have their sentences counted: all of the first shard, every second one of the second, and so on, so that
    this takes less and less time, and the same share is known of each shard whatever comes after it.
    """
    first = 0
    for block in blocks:
        if first >= items:
            first, number = 0, number + 1
        yield Task(block, corpus.tag, corpus.languages, first, every=number + 1)
        first += len(block.pairs)


def _is_made_of(record: ShardRecord, blocks: Iterator[Block]) -> bool:
    """Read the blocks of a shard, and return whether it was made of them."""
    num_read, text = 0, TextDigest()
    while num_read < record.read and (block := next(blocks, None)) is not None:
        num_read += len(block.pairs)
        text.add(block)
    return num_read == record.read and record.text == text.hex


def _remove_all_but(directory: Path, names: set[str]) -> None:
    """Remove shards that no longer belong to a corpus, and what a killed process left."""
    for path in sorted(directory.iterdir()):
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
