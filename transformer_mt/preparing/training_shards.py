"""Writes the training set: corpus by corpus, each in shards, and then the list of what belongs to it.

How it works. A corpus is read once, in blocks of some thousand pairs. Worker processes filter and encode the blocks
(`BlockEncoder`), and this process writes the results in the order of the text (`ShardWriter`). So the files are the
same whatever the number of processes, and only a few blocks for each process are in memory.

A shard holds the blocks until half a million pairs were read. It gets its name when it is whole, and its record has a
key: a hash of everything that its content depends on, such as the digest of the corpus, the tokenizer and the filters,
but not other corpora. A rerun keeps the shards whose keys fit. So a rerun after a kill resumes with the first shard
that is missing, and a further corpus leaves the shards of the others as they are.

What depends on several corpora is found afterwards: pairs that were there before. If there are any, the file `kept`
lists the pairs that stay. `shards.json`, which names all shards, is written last.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.wording import LineProgress, counted
from transformer_mt.base.worker_pool import Workers
from transformer_mt.batches.encoded import INDEX, KEPT, EncodedCorpus, ShardIndex
from transformer_mt.corpora.corpus import Block, Corpus
from transformer_mt.corpora.filters import Languages
from transformer_mt.corpora.repeated import HeldOut, Overlaps, Rows, find_duplicates
from transformer_mt.preparing.data_files import writing
from transformer_mt.preparing.pair_counts import PairCounts
from transformer_mt.preparing.shards import (
    KEYS,
    BlockEncoder,
    EncodedBlock,
    ShardRecord,
    ShardWriter,
    Task,
    block_digest,
    shard_name,
    text_digest,
    whole_shards,
)
from transformer_mt.storage.files import write_whole
from transformer_mt.text.training_lines import TrainingLines, TrainingLinesCounter

_FORMAT = 4  # of a shard; with another one all shards are made anew
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


@dataclass
class TrainingSet:
    """What was written."""

    overlaps: Overlaps
    """Which lines of the held-out sets are in the text."""
    counts: dict[str, PairCounts] = field(default_factory=dict)
    """What became of the pairs of each corpus."""
    lines: TrainingLines | None = None
    """None if no pair is left."""


@dataclass(frozen=True)
class ShardMaker:
    """Makes the shards of corpora, each in a directory of its own."""

    directory: Path
    encoder: BlockEncoder
    workers: Workers[Task, EncodedBlock]
    settings: str
    """A hash of the settings that shards depend on: tokenizer, filters, lengths, language and held-out sets."""
    held_out: HeldOut

    def shards(self, corpus: TrainingCorpus) -> list[ShardRecord]:
        """Make the shards of a corpus that are not there, and remove others. Returns the records of all, in order.

        Raises CorpusError if the text cannot be read or there is no room, and UserError.
        """
        directory = self.directory / corpus.name
        records = whole_shards(directory, lambda number: self._key(corpus, number))
        with writing(directory):
            directory.mkdir(exist_ok=True)
            _remove_all_but(directory, {shard_name(number) for number in range(len(records))})
        if not records or not records[-1].is_last:
            if records:
                are = counted(len(records), "shard is", "shards are")
                num_read = sum(record.read for record in records)
                print(f"{corpus.name}: {are} there already, of {counted(num_read, 'pair')}: resuming", flush=True)
            blocks = _blocks_after(corpus, records)
            num_read, doing = sum(record.read for record in records), f"{corpus.name}: "
            with LineProgress(corpus.pairs.num_pairs, done_before=num_read, doing=doing, unit="pairs") as progress:
                records += self._new_shards(corpus, directory, _tasks(corpus, blocks, len(records)), progress)
            with writing(directory):
                _remove_all_but(directory, {shard_name(number) for number in range(len(records))})
        return records

    def _new_shards(
        self, corpus: TrainingCorpus, directory: Path, tasks: Iterator[Task], progress: LineProgress
    ) -> Iterator[ShardRecord]:
        """Write the shards of these tasks."""
        tokenizer, writer = self.encoder.tokenizer, None
        sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
        try:
            for task, block in self.workers.map(tasks, DONE_HERE):
                if writer is None or task.shard != writer.number:
                    if writer is not None:
                        yield writer.finish(is_last=False)
                    key, overlaps = self._key(corpus, task.shard), Overlaps(self.held_out)
                    writer = ShardWriter(directory, task.shard, key, sizes, overlaps, self.encoder.with_keys)
                writer.add(task.block, block)
                progress.more(len(task.block.pairs))
            if writer is None:
                raise CorpusError(f"{corpus.name}: its text has changed while it was read; give the same command again")
            yield writer.finish(is_last=True)
        except BaseException:
            if writer is not None:
                writer.abandon()
            raise

    def _key(self, corpus: TrainingCorpus, number: int) -> str:
        """Return a hash of everything on which a shard depends."""
        with_keys = self.encoder.with_keys
        parts = (_FORMAT, self.settings, corpus.identity, corpus.tag, corpus.languages, ITEMS, with_keys, number)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _blocks_after(corpus: TrainingCorpus, whole: list[ShardRecord]) -> Iterator[Block]:
    """Return the blocks of a corpus that come after the shards that are whole.

    The text of each shard that is whole is compared with what was read when it was made: its key names the text that
    was surveyed, and a process that was killed had not compared the two. Takes the first shard that differs, and those
    after it, out of `whole`.
    """
    blocks = corpus.pairs.blocks()
    for number, record in enumerate(whole):
        num_read, digests = 0, list[bytes]()
        while num_read < record.read and (block := next(blocks, None)) is not None:
            num_read += len(block.pairs)
            digests.append(block_digest(block))
        if num_read != record.read or text_digest(digests) != record.text:
            print(f"{corpus.name}: its text had changed while it was read: making shard {number} again", flush=True)
            del whole[number:]
            return _blocks_after(corpus, whole)
    return blocks


def _tasks(corpus: TrainingCorpus, blocks: Iterator[Block], shard: int) -> Iterator[Task]:
    """Return a task for each of the blocks; the first of them begins the shard with this number."""
    num_read = 0
    for block in blocks:
        if num_read >= ITEMS:
            num_read, shard = 0, shard + 1
        yield Task(block, corpus.tag, corpus.languages, shard)
        num_read += len(block.pairs)


def write_training_set(maker: ShardMaker, corpora: Sequence[TrainingCorpus]) -> TrainingSet:
    """Make the shards that are not there, and their list. Raises UserError as `ShardMaker` does."""
    directory = maker.directory
    with writing(directory):
        directory.mkdir(exist_ok=True)
    records = {corpus.name: maker.shards(corpus) for corpus in corpora}
    _remove_all_but(directory, {*records, INDEX})
    paths = [f"{name}/{shard_name(number)}" for name in records for number in range(len(records[name]))]
    twice = [np.empty(0, np.int64)] * len(paths)
    if maker.encoder.with_keys:
        twice = find_duplicates([directory / path / KEYS for path in paths])
    with writing(directory / KEPT):
        return _listed(maker, records, paths, twice)


def _listed(
    maker: ShardMaker, records: dict[str, list[ShardRecord]], paths: list[str], twice: Sequence[Rows]
) -> TrainingSet:
    """Write the list of shards, and of the pairs that stay if some were there before; count what is in them."""
    result, lines, has_kept = TrainingSet(Overlaps(maker.held_out)), TrainingLinesCounter(), any(map(len, twice))
    longest, first, shards = np.zeros(2, np.int64), 0, zip(paths, twice, strict=True)
    with (maker.directory / KEPT).open("wb") if has_kept else nullcontext() as kept:
        for name, of_corpus in records.items():
            result.counts[name] = PairCounts()
            for record, (path, again) in zip(of_corpus, shards, strict=False):
                corpus = EncodedCorpus.load(maker.directory / path)
                rows = np.delete(np.arange(len(corpus)), again)
                sources, targets = corpus.source.lengths(rows), corpus.target.lengths(rows)
                dropped = Counter(record.dropped) + Counter(duplicate=len(again))
                result.counts[name] += PairCounts(len(rows), dropped, int(sources.sum()), int(targets.sum()))
                places = {(which, kind, line): place for which, kind, line, place in record.found}
                result.overlaps.merge(Overlaps(maker.held_out, places))
                lines.add_lengths(sources - 1, targets - 1)
                lines.sentences.update(record.sentences)
                longest = np.maximum(longest, [sources.max(initial=0), targets.max(initial=0)])
                if kept is not None:
                    kept.write((rows + first).data)  # not by `tofile` of NumPy, which says nothing if the disk is full
                first += len(corpus)
    total = sum(result.counts.values(), PairCounts())
    index = ShardIndex(
        shards=tuple(paths),
        sizes=tuple(count.kept for count in result.counts.values()),
        tokens=(total.source_tokens, total.target_tokens),
        longest=(int(longest[0]), int(longest[1])),
        has_kept=has_kept,
    )
    write_whole(maker.directory / INDEX, index.model_dump_json(indent=1) + "\n")
    result.lines = lines.result() if lines.num_pairs else None
    return result


def _remove_all_but(directory: Path, names: set[str]) -> None:
    """Remove shards and corpora that no longer belong here, and what a killed process left."""
    for path in sorted(directory.iterdir()):
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
