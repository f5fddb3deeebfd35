"""Writes the files of all splits into a data_dir that already has the tokenizer, and prints a report."""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.wording import counted
from transformer_mt.base.worker_pool import Workers
from transformer_mt.corpora.corpus import BadPair, Corpus
from transformer_mt.corpora.filters import KEPT, PairCounts, PieceFilters, TextFilters, drop_table
from transformer_mt.corpora.opening import corpus_digest, corpus_files, digest_of_part, open_corpus, parts_of
from transformer_mt.corpora.repeated import HeldOut
from transformer_mt.preparing.prepared import SUMMARY, TokenizerOrigin, is_training, write_data_sums
from transformer_mt.preparing.shards import BlockEncoder, write_encoded, writing
from transformer_mt.preparing.training_shards import Records, ShardMaker, TrainingCorpus, TrainingSet
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText
from transformer_mt.settings.section import fingerprint
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.storage.claims import Claims
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.own_directory import Owner, hold
from transformer_mt.storage.records import versions
from transformer_mt.text.tokenizer import Tokenizer, clean, tagged

T = TypeVar("T")

Pair = tuple[tuple[str, str], tuple[list[int], list[int]]]  # text; ids of source and target, EOS included

OWNER = Owner("prepare", "prepares data here", "choose another data_dir")


@contextmanager
def hold_data_dir(directory: Path, texts: Iterable[PairedText]) -> Iterator[None]:
    """Make a data_dir, or reuse one that a killed process left, for steps that only one process does. Others wait.

    Raises DirectoryError if it cannot be made, and this or CorpusError if a file of the user could be overwritten.
    """
    for path in [path for text in texts if text.share is None for path in corpus_files(text)]:
        if isinstance(path, Path) and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory)):
            raise CorpusError(
                f"{path}: this file of the corpus is in data_dir={directory}, where `prepare` could overwrite it; "
                "choose another data_dir"
            )
    with hold(directory, OWNER, patience=math.inf):
        for folder, folders, files in os.walk(directory):  # unlike `rglob`, while others make and remove directories
            for path in sorted(Path(folder, name) for name in folders + files):
                if path.is_symlink():  # `prepare` would write to the target of the link
                    raise CorpusError(
                        f"{path}: is a link that `prepare` did not make; move it away, or choose another data_dir"
                    )
        yield


def held_out_of(opened: Mapping[str, Corpus]) -> HeldOut:
    """Read the validation and test sets of these splits. Raises CorpusError at a pair that cannot be read."""
    sets = {name: corpus.pairs() for name, corpus in opened.items() if not is_training(name)}
    return HeldOut({name: ((clean(a), clean(b)) for a, b in pairs) for name, pairs in sets.items()})


def encoded(pairs: Corpus, tokenizer: Tokenizer, tag: str | None) -> list[Pair]:
    """Return text and ids of each pair, with the tag. Raises CorpusError at a bad pair: scores need all pairs."""
    texts = [(tagged(tag, source), target) for source, target in pairs.pairs()]
    sources = tokenizer.encode_source([source for source, _ in texts])
    targets = tokenizer.encode_target([target for _, target in texts])
    return list(zip(texts, zip(sources, targets, strict=True), strict=True))


def write_validation(place: Path, pairs: Sequence[Pair], max_length: int, tokenizer: Tokenizer) -> PairCounts:
    """Write ids and text of the pairs with at most `max_length` pieces on a side. Raises CorpusError if none is."""
    pieces = PieceFilters(max_length, max_ratio=float("inf"))  # the pairs of the set were chosen on purpose
    reasons = [pieces.reason(len(source) - 1, len(target) - 1) for _, (source, target) in pairs]
    kept = [pair for pair, reason in zip(pairs, reasons, strict=True) if reason is None]
    num_tokens = (sum(len(ids[side]) for _, ids in kept) for side in (0, 1))
    counts = PairCounts(len(kept), Counter(filter(None, reasons)), *num_tokens)
    check_some_left(counts)
    _write_text(place, kept)
    with writing(place):
        rows = (ids for _, ids in kept)
        write_encoded(place, rows, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    return counts


def write_test_set(prefix: Path, pairs: Sequence[Pair], max_positions: int) -> None:
    """Write all lines of a test set in order. Raises CorpusError if a source is too long for the model."""
    for number, (_, (source, _)) in enumerate(pairs, start=1):
        if len(source) > max_positions:
            raise CorpusError(
                f"{prefix.parent.name} set {prefix.name}: source line {number} has {len(source)} pieces, but the "
                f"model takes at most model.max_positions={max_positions}; raise it or split the line"
            )
    _write_text(prefix, pairs)


def _write_text(prefix: Path, pairs: Sequence[Pair]) -> None:
    with writing(prefix):
        prefix.parent.mkdir(exist_ok=True)
        for number, side in enumerate(("source", "target")):
            with Path(f"{prefix}.{side}.txt").open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{text[number]}\n" for text, _ in pairs)


def check_some_left(counts: PairCounts) -> None:
    """Raises CorpusError if no pair is left."""
    if not counts.kept:
        raise CorpusError(
            f"none of {counts.read:,} pairs is left (left out: {counts.drops}); look at the files of corpus.train and "
            "corpus.valid, or raise corpus.max_length or corpus.max_ratio, or switch filters off, such as "
            "filters.held_out=false"
        )


# A piece should occur at least this often in the training text, on average. With 1,000 pairs of the demo corpus,
# 6 times were better than 13 times, and with 5,000 pairs of Multi30k, 13 times were as good as 27.
_OFTEN = 3


@dataclass(frozen=True)
class Plan:
    """Everything from which a data_dir is made."""

    directory: Path
    corpus: CorpusConfig
    tokenizer_settings: TokenizerConfig
    max_positions: int
    """The most pieces that the model takes. No source of a test set may have more."""
    digests: dict[str, str]
    """The digest of the text of each split, by the names of `splits_of`."""
    pairs: dict[str, Corpus]
    """The text of each split."""
    held_out: HeldOut
    texts: TextFilters
    tokenizer: Tokenizer


def splits_of(corpus: CorpusConfig) -> dict[str, PairedText]:
    """Return each split by its name in a data_dir: train or train/NAME, valid (the first), valid/NAME, test/NAME."""
    several = isinstance(corpus.train, tuple)
    train = {f"train/{text.name}" if several else "train": corpus.text_of(text) for text in corpus.training_corpora}
    return {**train, **{name: corpus.text_of(split) for name, split in corpus.held_out.items()}}


def open_splits(corpus: CorpusConfig) -> dict[str, Corpus]:
    """Open the text of each split, by the same names; read shares of the training text. Raises CorpusError."""
    opened, splits, held = open_texts(corpus), splits_of(corpus), dict[str, Corpus]()
    for of in {splits[name].name for name in corpus.held_shares}:  # None: they are shares of all corpora
        shares = {name: bounds for name, bounds in corpus.held_shares.items() if splits[name].name == of}
        held |= parts_of(_training(opened, of), shares, clean)
    return {name: held.get(name) or opened[name] for name in splits}


def _training(splits: Mapping[str, T], name: str | None) -> list[T]:
    """Return the values of the training corpus with this name, or of all if it is None."""
    return [value for split, value in splits.items() if is_training(split) and name in (None, Path(split).name)]


def open_texts(corpus: CorpusConfig) -> dict[str, Corpus]:
    """Open the text of each split that is not a share of the training text, by the same names. Raises CorpusError."""
    splits = splits_of(corpus).items()
    return {name: open_corpus(text) for name, text in splits if name not in corpus.held_shares}


def split_digests(corpus: CorpusConfig) -> dict[str, str]:
    """Return the digest of the text of each split, by the same names, without looking for faults in it."""
    shares, splits = corpus.held_shares, splits_of(corpus)
    found = {name: corpus_digest(text) for name, text in splits.items() if name not in shares}
    held = {name: digest_of_part(_training(found, splits[name].name), bounds) for name, bounds in shares.items()}
    return {name: held.get(name) or found[name] for name in splits}


def fill_data_dir(plan: Plan, maker: ShardMaker, records: Records) -> None:
    """Write all files except the tokenizer and the shards, and prepare.json last. Raises UserError."""
    directory, tokenizer, splits = plan.directory, plan.tokenizer, splits_of(plan.corpus)
    tests = [name for name in plan.pairs if name.startswith("test/")]
    for name in tests:
        pairs = encoded(plan.pairs[name], tokenizer, splits[name].tag)
        write_test_set(directory / name, pairs, plan.max_positions)
    trained = maker.write_training_set(records)
    counts = {"train": sum(trained.counts.values(), PairCounts())}
    check_some_left(counts["train"])
    lines = trained.lines.result()
    lines.save(directory)
    for name in plan.corpus.validation_sets:
        valid = encoded(plan.pairs[name], tokenizer, splits[name].tag)
        counts[name] = write_validation(directory / name, valid, plan.corpus.max_length, tokenizer)
        bad = [pair for block in plan.pairs[name].blocks() for pair in block.pairs if isinstance(pair, BadPair)]
        counts[name].dropped.update(pair.reason for pair in bad)
    _write_summary(plan, counts, trained)
    _report(plan, counts, {name: plan.held_out.sizes[name] for name in tests}, trained)
    print(lines.description)
    print(f"prepared: {directory}")


@contextmanager
def shard_maker(plan: Plan, claims: Claims, num_workers: int) -> Iterator[tuple[ShardMaker, list[TrainingCorpus]]]:
    """Yield what makes the shards of the training set, and the corpora of which it makes them."""
    corpus = plan.corpus
    encoder = BlockEncoder(plan.tokenizer, plan.texts, PieceFilters(corpus.max_length, corpus.max_ratio))
    numbers = f"{corpus.max_length} {corpus.max_ratio}"
    sets = [digest for name, digest in plan.digests.items() if not is_training(name)]
    settings = fingerprint(plan.tokenizer.digest, plan.texts.settings, numbers, *sets)
    corpora = []
    for name, text in splits_of(corpus).items():
        if is_training(name):
            identity, languages = fingerprint(plan.digests[name], text.reading), corpus.languages_of(text)
            corpora.append(TrainingCorpus(str(text.name), plan.pairs[name], text.tag or "", languages, identity))
    # Not by a fork, because other threads of this process may hold locks, which the copy would never release.
    with closing(Workers(encoder.encode, num_workers, start="spawn")) as workers:
        yield ShardMaker(plan.directory / "train", encoder, workers, settings, plan.held_out, claims), corpora


def _write_summary(plan: Plan, counts: dict[str, PairCounts], trained: TrainingSet) -> None:
    """Write the last file: if it exists, the stage has finished."""
    tokenizer, origin = plan.tokenizer, TokenizerOrigin.load(plan.directory)
    from_the_hub = any(text.hub for text in splits_of(plan.corpus).values())
    read_the_hub = ["datasets"] if from_the_hub else []  # otherwise the package may be missing
    content: dict[str, Any] = {
        "corpus": plan.corpus.model_dump(),
        "filters": plan.texts.settings.model_dump(),
        "tokenizer": plan.tokenizer_settings.model_dump(),
        "digests": plan.digests,
        "counts": {name: count.summary for name, count in counts.items()},
        "corpora": {name: {KEPT: count.kept, **count.dropped} for name, count in trained.counts.items()},
        "also_in_training": trained.overlaps.counts,
        "mean_lengths": {name: count.mean_lengths for name, count in counts.items()},
        "vocabulary": {"source": tokenizer.source_vocab_size, "target": tokenizer.target_vocab_size},
        "tokenizer_digest": tokenizer.digest,
        "tokenizer_trained_on": list(origin.trained_on) if origin and plan.tokenizer_settings.from_ is None else None,
        "versions": versions(["sentencepiece", "numpy", *read_the_hub]),
    }
    summary = (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
    write_data_sums(plan.directory, summary, plan.corpus.held_out)
    write_whole(plan.directory / SUMMARY, summary)


def _report(plan: Plan, counts: dict[str, PairCounts], test_sizes: dict[str, int], trained: TrainingSet) -> None:
    tokenizer = plan.tokenizer
    for name, count in counts.items():
        means = count.mean_lengths
        print(
            f"{name}: {counted(count.kept, 'pair')} of {count.read:,} (left out: {count.drops}); "
            f"mean length {means['source']} source and {means['target']} target pieces"
        )
    for name, size in test_sizes.items():
        print(f"{name}: {counted(size, 'pair')}")
    if counts["train"].dropped:
        print(drop_table({name: Counter({KEPT: count.kept}) + count.dropped for name, count in trained.counts.items()}))
    for note in trained.overlaps.notes(plan.texts.settings.held_out):
        print(note)
    if plan.tokenizer_settings.from_ is None and (note := _note_of_rare_pieces(tokenizer, counts["train"])):
        print(note)
    sizes = f"{tokenizer.source_vocab_size:,} source and {tokenizer.target_vocab_size:,} target pieces"
    print("vocabulary:", f"{tokenizer.source_vocab_size:,} pieces for both" if tokenizer.joint else sizes)


def _note_of_rare_pieces(tokenizer: Tokenizer, trained: PairCounts) -> str:
    """Return a note if the vocabulary is so large that its pieces are rare in the text; otherwise an empty text."""
    source, target = trained.source_tokens, trained.target_tokens
    if tokenizer.joint:
        times = (source + target) / tokenizer.source_vocab_size
    else:
        times = min(source / tokenizer.source_vocab_size, target / tokenizer.target_vocab_size)
    if times >= _OFTEN:
        return ""
    return (
        f"note: on average, a piece of the vocabulary occurs only {times:,.0f} times in the training text, so most "
        "are too rare to be learned well: set a smaller tokenizer.vocab_size and another data_dir"
    )
