"""Writes the training set: corpus by corpus, each in shards, and then the list of what belongs to it.

How it works. A corpus is read once, in blocks of some thousand pairs. Worker processes filter and encode the blocks
(`block_encoding`), and this process writes the results in the order of the text (`shards`). So the
files are the same whatever the number of processes, and only a few blocks for each process are in memory.

A shard holds the blocks until half a million pairs were read. It gets its name when it is whole, and its record has a
key: a hash of everything that its content depends on, such as the digest of the corpus, the tokenizer and the filters,
but not other corpora. A rerun keeps the shards whose keys fit. So a run that was killed goes on with the first shard
that is missing, and a further corpus leaves the shards of the others as they are (`corpus_shards`).

What depends on several corpora is found afterwards: pairs that were there before. Beside a shard with such pairs, a
file lists the rows that stay. `shards.json`, which names all shards, is written last.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from transformer_mt.corpora.duplicates import KEY_BYTES, find_duplicates
from transformer_mt.corpora.held_out import Overlaps
from transformer_mt.data.corpus_shards import ShardMaker, TrainingCorpus
from transformer_mt.data.data_directory import writing
from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.pair_counts import PairCounts
from transformer_mt.data.shard_index import INDEX, IndexedShard, ShardIndex
from transformer_mt.data.shards import KEYS, ShardRecord, line_words, shard_name
from transformer_mt.data.training_lines import TrainingLines, TrainingLinesCounter


@dataclass
class TrainingSet:
    """What was written."""

    overlaps: Overlaps
    """Which lines of the held-out sets are in the text."""
    counts: dict[str, PairCounts] = field(default_factory=dict)
    """What became of the pairs of each corpus."""
    lines: TrainingLines | None = None
    """None if no pair is left."""


def write_training_set(maker: ShardMaker, corpora: Sequence[TrainingCorpus]) -> TrainingSet:
    """Make the shards that are not there, and their list. Raises CorpusError and WorkerError as `ShardMaker` does."""
    with writing(maker.directory):
        maker.directory.mkdir(exist_ok=True)
    records = {corpus.name: maker.shards(corpus) for corpus in corpora}
    _remove_other_corpora(maker.directory, set(records))
    shards = [maker.directory / name / shard_name(number) for name in records for number in range(len(records[name]))]
    if maker.encoder.with_keys:
        _leave_out_duplicates(shards, maker.directory / "duplicates")
    result, index = TrainingSet(Overlaps(maker.held_out)), dict[str, tuple[IndexedShard, ...]]()
    lines = TrainingLinesCounter()
    for name, found in records.items():
        listed = []
        counts = result.counts[name] = PairCounts()
        for number, record in enumerate(found):
            shard = maker.directory / name / shard_name(number)
            listed.append(_listed(maker.directory, shard, lines))
            lines.words.merge(line_words(shard), record.every)
            _count(counts, record, listed[-1])
            places = {(which, kind, line): place for which, kind, line, place in record.found}
            result.overlaps.merge(Overlaps(maker.held_out, places))
        index[name] = tuple(listed)
    ShardIndex(corpora=index).save(maker.directory)
    result.lines = lines.result() if lines.num_pairs else None
    return result


def _leave_out_duplicates(shards: Sequence[Path], work: Path) -> None:
    """Beside each shard that has pairs that were there before, write which of its rows stay."""
    with writing(work):
        twice = find_duplicates([shard / KEYS for shard in shards], work)
        for shard, rows in zip(shards, twice, strict=True):
            if len(rows):
                num_pairs = (shard / KEYS).stat().st_size // KEY_BYTES
                # Not by `tofile` of NumPy, which says nothing if the disk is full.
                _kept_rows(shard).write_bytes(np.delete(np.arange(num_pairs, dtype=np.int32), rows).data)


def _kept_rows(shard: Path) -> Path:
    return shard.with_name(f"{shard.name}.kept")


def _listed(directory: Path, shard: Path, lines: TrainingLinesCounter) -> IndexedShard:
    """Return the entry of a shard in the list, and count the lengths of its pairs."""
    path, corpus, kept = shard.relative_to(directory).as_posix(), EncodedCorpus.load(shard), _kept_rows(shard)
    rows = np.fromfile(kept, np.int32) if kept.exists() else np.arange(len(corpus), dtype=np.int32)
    sources, targets = corpus.source.lengths(rows), corpus.target.lengths(rows)
    lines.add_lengths(sources - 1, targets - 1)
    return IndexedShard(
        path=path,
        pairs=len(rows),
        tokens=(int(sources.sum()), int(targets.sum())),
        longest=(int(sources.max(initial=0)), int(targets.max(initial=0))),
        kept=f"{path}.kept" if kept.exists() else None,
    )


def _count(counts: PairCounts, record: ShardRecord, listed: IndexedShard) -> None:
    counts.kept += listed.pairs
    counts.dropped.update(record.dropped)
    if listed.pairs < record.pairs:
        counts.dropped["duplicate"] += record.pairs - listed.pairs
    counts.source_tokens += listed.tokens[0]
    counts.target_tokens += listed.tokens[1]


def _remove_other_corpora(directory: Path, names: set[str]) -> None:
    """Remove what was written of corpora that are no longer in the configuration, and what killed processes left."""
    for path in sorted(directory.iterdir()):
        if path.name not in (*names, INDEX):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
