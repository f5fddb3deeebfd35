"""Writes the training set: the shards of each corpus, and then the list of all shards.

How it works. This process reads a corpus once, in blocks of some thousand pairs. Worker processes filter and encode the
blocks (`BlockEncoder`), and this process writes the results in the order of the text (`ShardWriter`). So the files are
the same for any number of processes, and only a few blocks for each process are in memory.

A shard contains the blocks of half a million pairs. It gets its name when it is complete. Its record has a key: a hash
of everything that its content depends on, such as the digest of the corpus, the tokenizer and the filters, but not
other corpora. A rerun keeps the shards with the right keys. So a rerun after a kill resumes with the first missing
shard, and if you add a corpus, the shards of the others stay unchanged.

Duplicates depend on several corpora, so they are found afterwards. If there are any, the file `kept.rows` lists the
pairs that stay. `shards.json`, which names all shards, is written last.
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
from transformer_mt.corpora.filters import Languages, PairCounts
from transformer_mt.corpora.repeated import HeldOut, Overlaps, Rows, find_duplicates
from transformer_mt.preparing.shards import (
    KEYS,
    SENTENCES,
    BlockEncoder,
    EncodedBlock,
    ShardRecord,
    ShardWriter,
    Task,
    block_digest,
    complete_shards,
    shard_name,
    text_digest,
    writing,
)
from transformer_mt.storage.files import write_whole
from transformer_mt.text.training_lines import TrainingLinesCounter

_FORMAT = 5  # of a shard; after a change, all shards are made again
DONE_HERE = 20  # blocks; starting worker processes takes about as long as encoding this number of blocks
ITEMS = 500_000  # pairs, bad pairs included, after which a shard ends


@dataclass(frozen=True)
class TrainingCorpus:
    """A corpus of the training set."""

    name: str
    pairs: Corpus
    tag: str
    """The token before each source; may be empty."""
    languages: Languages
    identity: str
    """A hash of its text and of how the text is read."""


@dataclass
class TrainingSet:
    """Facts about the training set that was written."""

    overlaps: Overlaps
    """Which lines of the held-out sets are also in the training text."""
    counts: dict[str, PairCounts] = field(default_factory=dict)
    """How many pairs of each corpus were kept and left out."""
    lines: TrainingLinesCounter = field(default_factory=TrainingLinesCounter)


@dataclass(frozen=True)
class ShardMaker:
    """Makes the shards of corpora. Each corpus has its own directory."""

    directory: Path
    encoder: BlockEncoder
    workers: Workers[Task, EncodedBlock]
    settings: str
    """A hash of the settings that shards depend on: tokenizer, filters, lengths, language and held-out sets."""
    held_out: HeldOut
    with_keys: bool
    """Whether filters.duplicates is on, which needs keys of the pairs."""

    def shards(self, corpus: TrainingCorpus) -> list[ShardRecord]:
        """Make the missing shards of a corpus, and remove outdated ones. Returns all records. Raises UserError."""
        directory = self.directory / corpus.name
        records = complete_shards(directory, lambda number: self._key(corpus, number))
        with writing(directory):
            directory.mkdir(exist_ok=True)
        if not records or not records[-1].is_last:
            if records:
                done, num_read = counted(len(records), "shard"), sum(record.read for record in records)
                print(f"{corpus.name}: resuming after {done} with {counted(num_read, 'pair')}", flush=True)
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
                    writer = ShardWriter(directory, task.shard, key, sizes, overlaps, self.with_keys)
                writer.add(task.block, block)
                progress.more(len(task.block.pairs))
            if writer is None:
                raise CorpusError(f"{corpus.name}: the text has changed during reading; give the same command again")
            yield writer.finish(is_last=True)
        except BaseException:
            if writer is not None:
                writer.abandon()
            raise

    def _key(self, corpus: TrainingCorpus, number: int) -> str:
        """Return a hash of everything on which a shard depends."""
        parts = (_FORMAT, self.settings, corpus.identity, corpus.tag, corpus.languages, ITEMS, self.with_keys, number)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _blocks_after(corpus: TrainingCorpus, complete: list[ShardRecord]) -> Iterator[Block]:
    """Return the blocks of a corpus that come after its complete shards.

    Compares the text of each complete shard with the text from which it was made, because the text may have changed
    between the computation of the digest in the shard's key and the encoding. Removes the first shard that differs,
    and those after it, from `complete`.
    """
    blocks = corpus.pairs.blocks()
    for number, record in enumerate(complete):
        num_read, digests = 0, list[bytes]()
        while num_read < record.read and (block := next(blocks, None)) is not None:
            num_read += len(block.pairs)
            digests.append(block_digest(block))
        if num_read != record.read or text_digest(digests) != record.text:
            print(f"{corpus.name}: the text had changed during reading, so shard {number} is made again", flush=True)
            del complete[number:]
            return _blocks_after(corpus, complete)
    return blocks


def _tasks(corpus: TrainingCorpus, blocks: Iterator[Block], shard: int) -> Iterator[Task]:
    """Yield a task for each of the blocks. The first block begins the shard with the number `shard`."""
    num_read = 0
    for block in blocks:
        if num_read >= ITEMS:
            num_read, shard = 0, shard + 1
        yield Task(block, corpus.tag, corpus.languages, shard)
        num_read += len(block.pairs)


def write_training_set(maker: ShardMaker, corpora: Sequence[TrainingCorpus]) -> TrainingSet:
    """Make the missing shards, and the list of all shards. Raises UserError like `ShardMaker.shards`."""
    directory = maker.directory
    with writing(directory):
        directory.mkdir(exist_ok=True)
    records = {corpus.name: maker.shards(corpus) for corpus in corpora}
    _remove_all_but(directory, {*records, INDEX})
    paths = [f"{name}/{shard_name(number)}" for name in records for number in range(len(records[name]))]
    duplicates = [np.empty(0, np.int64)] * len(paths)
    if maker.with_keys:
        duplicates = find_duplicates([directory / path / KEYS for path in paths])
    with writing(directory / KEPT):
        return _write_lists(maker, records, paths, duplicates)


def _write_lists(
    maker: ShardMaker, records: dict[str, list[ShardRecord]], paths: list[str], duplicates: Sequence[Rows]
) -> TrainingSet:
    """Write the list of shards and, if there are duplicates, the list of the pairs that stay. Counts the pairs."""
    result, has_kept = TrainingSet(Overlaps(maker.held_out)), any(map(len, duplicates))
    longest, first, shards = np.zeros(2, np.int64), 0, zip(paths, duplicates, strict=True)
    with (maker.directory / KEPT).open("wb") if has_kept else nullcontext() as kept:
        for name, of_corpus in records.items():
            result.counts[name] = PairCounts()
            for record, (path, repeated) in zip(of_corpus, shards, strict=False):
                corpus = EncodedCorpus.load(maker.directory / path)
                rows = np.delete(np.arange(len(corpus)), repeated)
                sources, targets = corpus.source.lengths(rows), corpus.target.lengths(rows)
                dropped = Counter(record.dropped) + Counter(duplicate=len(repeated))
                result.counts[name] += PairCounts(len(rows), dropped, int(sources.sum()), int(targets.sum()))
                places = {(which, kind, line): place for which, kind, line, place in record.found}
                result.overlaps.found = places | result.overlaps.found  # the first place stays
                result.lines.add_lengths(sources - 1, targets - 1)
                sentences = np.fromfile(maker.directory / path / SENTENCES, np.int32)
                result.lines.sentences.update(sentences[rows].tolist())
                longest = np.maximum(longest, [sources.max(initial=0), targets.max(initial=0)])
                if kept is not None:
                    kept.write((rows + first).data)  # not by NumPy's `tofile`, which gives no error if the disk is full
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
    return result


def _remove_all_but(directory: Path, names: set[str]) -> None:
    """Remove outdated shards and corpora, and the remains of killed processes."""
    for path in sorted(directory.iterdir()):
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
