"""Writes the training set: the shards of each corpus, and then the list of all shards.

How it works. This process reads a corpus once, in blocks of some thousand pairs. Worker processes filter and encode the
blocks (`BlockEncoder`), and this process writes the results in the order of the text (`ShardWriter`). So the files are
the same for any number of processes, and only a few blocks for each process are in memory. Other processes that prepare
the same data may make some of the shards: each shard is claimed by the process that makes it.

A shard contains the blocks of half a million pairs. It gets its name when it is complete. Its record has a key: a hash
of everything that its content depends on, such as the digest of the corpus, the tokenizer and the filters, but not
other corpora. A rerun keeps the shards with the right keys. So a rerun after a kill makes only the missing shards, and
if you add a corpus, the shards of the others stay unchanged. Each process compares the text of the others' shards with
what it reads, because the text may have changed after its digest was computed.

Duplicates depend on several corpora, so they are found afterwards. If there are any, the file `kept.rows` lists the
pairs that stay. `shards.json`, which names all shards, is written last.
"""

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.wording import LineProgress, counted
from transformer_mt.base.worker_pool import Workers
from transformer_mt.batches.encoded import INDEX, KEPT, EncodedCorpus, ShardIndex
from transformer_mt.corpora.corpus import Block, Corpus
from transformer_mt.corpora.filters import Languages, PairCounts
from transformer_mt.corpora.repeated import HeldOut, Overlaps, Rows, find_duplicates
from transformer_mt.preparing import shards
from transformer_mt.storage.checksums import fault
from transformer_mt.storage.claims import POLL, Claims
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


Records = dict[str, list[shards.ShardRecord]]
"""The records of the shards of each corpus, in order."""


@dataclass(frozen=True)
class ShardMaker:
    """Makes the shards of corpora. Each corpus has its own directory."""

    directory: Path
    encoder: shards.BlockEncoder
    workers: Workers[shards.Task, shards.EncodedBlock]
    settings: str
    """A hash of the settings that shards depend on: tokenizer, filters, lengths, language and held-out sets."""
    held_out: HeldOut
    claims: Claims

    def make_room(self, corpora: Sequence[TrainingCorpus]) -> None:
        """Remove the shards of other corpora. No other process may make any."""
        with shards.writing(self.directory):
            for path in self.directory.iterdir():
                if path.is_dir() and path.name not in {corpus.name for corpus in corpora}:
                    shutil.rmtree(path)

    def key(self, corpus: TrainingCorpus, number: int) -> str:
        """Return a hash of everything on which a shard depends."""
        of_corpus, with_keys = (corpus.identity, corpus.tag, corpus.languages), self.encoder.texts.settings.duplicates
        parts = (_FORMAT, self.settings, *of_corpus, ITEMS, with_keys, number)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def write_training_set(self, records: Records) -> TrainingSet:
        """Write the list of all shards, and remove everything else. Raises UserError."""
        with shards.writing(self.directory):
            for name, of_corpus in records.items():
                _remove_all_but(self.directory / name, {shards.shard_name(number) for number in range(len(of_corpus))})
            _remove_all_but(self.directory, {*records, INDEX, *self.claims.needed()})
        paths = [f"{name}/{shards.shard_name(number)}" for name in records for number in range(len(records[name]))]
        duplicates = [np.empty(0, np.int64)] * len(paths)
        if self.encoder.texts.settings.duplicates:
            duplicates = find_duplicates([self.directory / path / shards.KEYS for path in paths])
        with shards.writing(self.directory / KEPT):
            return _write_lists(self, records, paths, duplicates)


class _CorpusShards:
    """The shards of a corpus, some of which other processes make."""

    def __init__(self, maker: ShardMaker, corpus: TrainingCorpus) -> None:
        self.maker, self.corpus, self.directory = maker, corpus, maker.directory / corpus.name
        self.records = dict[int, shards.ShardRecord]()
        """The shards that are complete and have the text that this process has read."""
        self._texts = dict[int, tuple[int, str]]()  # of other shards: the number of pairs, and the digest
        self._num_shards: int | None = None  # None until the corpus was read to its end
        with shards.writing(self.directory):
            self.directory.mkdir(exist_ok=True)

    def read(self) -> None:
        """Read the corpus once, and make the shards that are missing and that no other process makes.

        Raises UserError.
        """
        found = [self._found(number) for number in range(len(list(self.directory.glob("[0-9]*"))))]
        complete = [*self.records.values()] or [record for record in found if record is not None]
        if not self.records and complete == found and found[-1:] and complete[-1].is_last:
            self._texts = {number: (record.read, record.text) for number, record in enumerate(complete)}
            self._num_shards = len(complete)
            return
        num_read, name = sum(record.read for record in complete), self.corpus.name
        if complete and not self.records:
            done = counted(len(complete), "shard")
            print(f"{name}: resuming after {done} with {counted(num_read, 'pair')}", flush=True)
        with LineProgress(
            self.corpus.pairs.num_pairs, done_before=num_read, doing=f"{name}: ", unit="pairs"
        ) as progress:
            is_ours = cache(self._is_ours)  # which is decided at the first block of a shard
            for ours, blocks in groupby(self._numbered(), lambda block: is_ours(block[0])):
                if ours:
                    self._make(blocks, progress)
                else:
                    self._skip(blocks)
        if self._num_shards is None:
            raise CorpusError(f"{name}: the text has changed during reading; give the same command again")

    def missing(self) -> Iterator[Path]:
        """Yield the shards that are not complete. Removes those that are damaged, or made from another text."""
        for number in range(self._num_shards or 0):
            if number in self.records:
                continue
            shard, record = self._shard(number), self._found(number)
            if record is not None and fault(shard, shards.SHARD_FILES) is None:
                if (record.read, record.text) == self._texts[number]:
                    self.records[number] = record
                    continue
                name = self.corpus.name
                print(f"{name}: the text had changed during reading, so shard {number} is made again", flush=True)
            if record is not None:
                with shards.writing(shard), suppress(FileNotFoundError):
                    shards.discard(shard)
            yield shard

    def _shard(self, number: int) -> Path:
        return self.directory / shards.shard_name(number)

    def _found(self, number: int) -> shards.ShardRecord | None:
        return shards.read_record(self._shard(number), self.maker.key(self.corpus, number))

    def _is_ours(self, number: int) -> bool:
        """Whether this process makes the shard, which it then claims."""
        if self._found(number) is not None or not self.maker.claims.take(self._shard(number)):
            return False
        if has_come := self._found(number) is not None:  # another process has just completed it
            self.maker.claims.give_back(self._shard(number))
        return not has_come

    def _numbered(self) -> Iterator[tuple[int, Block]]:
        """Yield each block of the corpus with the number of its shard."""
        number, num_read, block = 0, 0, None
        for block in self.corpus.pairs.blocks():
            if num_read >= ITEMS:
                number, num_read = number + 1, 0
            yield number, block
            num_read += len(block.pairs)
        if block is not None:
            self._num_shards = number + 1

    def _skip(self, blocks: Iterable[tuple[int, Block]]) -> None:
        """Note which text belongs to the shards of other processes."""
        for number, same in groupby(blocks, itemgetter(0)):
            num_read, digests = 0, list[bytes]()
            for _, block in same:
                num_read += len(block.pairs)
                digests.append(shards.block_digest(block))
            self._texts[number] = num_read, shards.text_digest(digests)

    def _make(self, blocks: Iterable[tuple[int, Block]], progress: LineProgress) -> None:
        """Write the shards of these blocks."""
        maker, corpus = self.maker, self.corpus
        tasks = (shards.Task(block, corpus.tag, corpus.languages, number) for number, block in blocks)
        for number, results in groupby(maker.workers.map(tasks, DONE_HERE), lambda result: result[0].shard):
            writer = shards.ShardWriter(self._shard(number), maker.key(corpus, number), Overlaps(maker.held_out))
            try:
                for task, block in results:
                    writer.add(task.block, block)
                    progress.more(len(task.block.pairs))
                # If the corpus was not read to its end yet, there is a block behind this shard.
                self.records[number] = writer.finish(is_last=self._num_shards == number + 1)
            except BaseException:
                writer.ids.abandon()
                raise
            maker.claims.give_back(writer.shard)


def make_shards(maker: ShardMaker, corpora: Sequence[TrainingCorpus]) -> Records:
    """Make shards until all are complete, those of other processes too. Raises UserError."""
    of_corpora = [_CorpusShards(maker, corpus) for corpus in corpora]
    for each in of_corpora:
        each.read()
    while unfinished := [each for each in of_corpora if any(True for _ in each.missing())]:
        free = [each for each in unfinished if any(map(maker.claims.take, each.missing()))]
        for each in free:
            each.read()
        if not free:
            time.sleep(POLL)
    return {each.corpus.name: [each.records[number] for number in sorted(each.records)] for each in of_corpora}


def _write_lists(maker: ShardMaker, records: Records, paths: list[str], duplicates: Sequence[Rows]) -> TrainingSet:
    """Write the list of shards and, if there are duplicates, the list of the pairs that stay. Counts the pairs."""
    result, has_kept = TrainingSet(Overlaps(maker.held_out)), any(map(len, duplicates))
    longest, first, listed = np.zeros(2, np.int64), 0, zip(paths, duplicates, strict=True)
    with (maker.directory / KEPT).open("wb") if has_kept else nullcontext() as kept:
        for name, of_corpus in records.items():
            result.counts[name] = PairCounts()
            for record, (path, repeated) in zip(of_corpus, listed, strict=False):
                corpus = EncodedCorpus.load(maker.directory / path)
                rows = np.delete(np.arange(len(corpus)), repeated)
                sources, targets = corpus.source.lengths(rows), corpus.target.lengths(rows)
                dropped = Counter(record.dropped) + Counter(duplicate=len(repeated))
                result.counts[name] += PairCounts(len(rows), dropped, int(sources.sum()), int(targets.sum()))
                places = {(which, kind, line): place for which, kind, line, place in record.found}
                result.overlaps.found = places | result.overlaps.found  # the first place stays
                result.lines.add_lengths(sources - 1, targets - 1)
                sentences = np.fromfile(maker.directory / path / shards.SENTENCES, np.int32)
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
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
