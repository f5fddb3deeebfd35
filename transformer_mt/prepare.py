"""Stage 1: sentence pairs become a tokenizer and token ids on disk."""

import json
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from transformer_mt import __version__
from transformer_mt.data.corpus import SentencePairs, open_pairs, split_digest
from transformer_mt.data.data_directory import hold_data_dir
from transformer_mt.data.existing_tokenizer import check_fits, check_sampling, open_existing, remarks
from transformer_mt.data.overlaps import Overlap, OverlapCounter
from transformer_mt.data.pair_counts import PairCounts
from transformer_mt.data.prepared import (
    SUMMARY,
    TRAINED_ON,
    Prepared,
    check_data,
    files_of_test_set,
    read_prepared,
    write_data_sums,
    write_sums_of_older,
)
from transformer_mt.data.split_files import Pair, write_test_set, write_training, write_validation
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.data.training_lines import TrainingLines, TrainingLinesCounter
from transformer_mt.errors import CorpusError
from transformer_mt.evaluation.metrics import check_tokeniser
from transformer_mt.settings.experiment import Config, CorpusConfig, Split, TokenizerConfig
from transformer_mt.settings.reading import differences, load_config
from transformer_mt.storage.checksums import has_sums
from transformer_mt.storage.files import write_whole
from transformer_mt.terminal import cli
from transformer_mt.wording import counted

_BLOCK = 10_000  # pairs that are encoded together
_LINES_LOOKED_AT = 500_000  # about half a million lines, evenly spaced, have their sentences counted


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status; raises UserError."""
    parser = cli.parser(
        "prepare",
        "Reads the corpus of a configuration; trains a tokenizer, or takes the existing one that tokenizer.from\n"
        "names; writes the tokenizer, token ids, and the text of validation and test sets to data_dir.",
        "python -m transformer_mt.prepare configs/demo_en_de.yaml tokenizer.vocab_size=1000",
    )
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the experiment, as in configs/")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="settings in place of the file's")
    arguments = parser.parse_intermixed_args(argv)
    config = load_config(arguments.config, arguments.overrides)
    if warning := config.training.schedule_warning():
        print(f"warning: {warning}", file=sys.stderr)
    prepare(config)
    return 0


def prepare(config: Config) -> None:
    """Fill config.data_dir, unless that is done; raises UserError, also if it was filled from other text."""
    check_tokeniser(config.corpus.target_language)  # `train` and `evaluate` need it: better said now than hours later
    directory = Path(config.data_dir)
    splits = _splits(config.corpus)
    digests = {name: split_digest(config.corpus, split) for name, split in splits.items()}
    if _is_done(directory, config, digests):
        return
    pairs = {name: open_pairs(config.corpus, split) for name, split in splits.items()}
    existing = None
    if config.tokenizer.from_ is not None:
        existing = _existing_tokenizer(config.tokenizer.from_, config.tokenizer, config.training.subword_sampling)
    with hold_data_dir(directory, config.corpus, splits.values()):
        if not _is_done(directory, config, digests):  # by a process that has just ended
            _fill(directory, config, digests, pairs, existing)


def _is_done(directory: Path, config: Config, digests: dict[str, str]) -> bool:
    """Whether the directory is prepared already, which is said. Raises CorpusError if it was from something else."""
    if not (directory / SUMMARY).exists():
        return False
    tests = list(config.corpus.test)
    if has_sums(directory):
        check_data(directory, (*TRAINED_ON, *(file for name in tests for file in files_of_test_set(name))))
    _check_same(directory, config, digests)
    if TrainingLines.load(directory) is None:
        _count_lines(directory, config)
    if not has_sums(directory):
        write_sums_of_older(directory, tests)
    print(f"already prepared: {directory}")
    return True


def _fill(
    directory: Path,
    config: Config,
    digests: dict[str, str],
    pairs: dict[str, SentencePairs],
    tokenizer: Tokenizer | None,
) -> None:
    """Write all files, with this tokenizer or a new one."""
    if tokenizer is None:
        print(f"training the tokenizer on {config.corpus.train}", flush=True)
        tokenizer = _train_tokenizer(pairs["train"], config.tokenizer)
    tokenizer.save(directory)
    tests = [name for name in pairs if name.startswith("test/")]
    for name in tests:
        write_test_set(directory / name, _encoded(pairs[name], tokenizer, name), config.model.max_positions)
    overlaps = OverlapCounter({name: pairs[name] for name in pairs if name != "train"})
    counts = {"train": PairCounts(), "valid": PairCounts()}
    lines = _lines_counter(config.corpus, pairs["train"])

    def kept(name: str, max_ratio: float) -> Iterator[Pair]:
        encoded = _encoded(pairs[name], tokenizer, name)
        return _kept(encoded, counts[name], config.corpus.max_length, max_ratio)

    write_training(directory, kept("train", config.corpus.max_ratio), counts["train"], tokenizer, lines, overlaps)
    lines.result().save(directory)
    # Whoever wrote the validation set meant its ratios, however odd.
    write_validation(directory, kept("valid", float("inf")), tokenizer)
    _write_summary(directory, config, digests, counts, overlaps.overlaps, tokenizer)
    _report(counts, tokenizer, {name: len(pairs[name]) for name in tests}, overlaps.overlaps)
    print(lines.result().description)
    print(f"prepared: {directory}")


def _lines_counter(corpus: CorpusConfig, pairs: SentencePairs) -> TrainingLinesCounter:
    return TrainingLinesCounter(corpus.source_language, every=-(-len(pairs) // _LINES_LOOKED_AT))


def _count_lines(directory: Path, config: Config) -> None:
    """Write what an older version did not: how long the lines are of the data that it prepared."""
    corpus, pairs, tokenizer = config.corpus, open_pairs(config.corpus, config.corpus.train), Tokenizer.load(directory)
    lines, counts = _lines_counter(corpus, pairs), PairCounts()
    for text, ids in _encoded(pairs, tokenizer, "train"):
        if counts.keep(ids, corpus.max_length, corpus.max_ratio):
            lines.add(text[0], len(ids[0]) - 1, len(ids[1]) - 1)
    lines.result().save(directory)


def _splits(corpus: CorpusConfig) -> dict[str, Split]:
    """Each split by the name of what is written of it: train, valid, test/NAME."""
    tests = {f"test/{name}": split for name, split in corpus.test.items()}
    return {"train": corpus.train, "valid": corpus.valid, **tests}


def _check_same(directory: Path, config: Config, digests: dict[str, str]) -> None:
    """Raises CorpusError, saying what differs, unless the directory is of this configuration and this text."""
    prepared = read_prepared(directory)
    changes = [f"{SUMMARY} cannot be read"] if prepared is None else _changes(prepared, config, digests)
    if prepared is None or changes:
        raise CorpusError(
            f"{directory} cannot be used for this experiment: {'; '.join(changes)}. Choose another data_dir, or "
            "delete this one"
        )
    prepared.load_tokenizer()  # finds out whether another one was put in its place


def _changes(prepared: Prepared, config: Config, digests: dict[str, str]) -> list[str]:
    same = prepared.same_tokenizer(config.tokenizer)
    sections = {"corpus": prepared.corpus, "tokenizer": config.tokenizer if same else prepared.tokenizer}
    changes = [*differences(config.model_copy(update=sections), config).values()]
    texts = [name for name, digest in digests.items() if digest != prepared.digests.get(name, digest)]
    changes += [f"the text of {name} has changed" for name in texts]
    return changes + prepared.tokenizer_changes(config.tokenizer) if same else changes


def _existing_tokenizer(path: str, settings: TokenizerConfig, subword_sampling: float) -> Tokenizer:
    """The tokenizer at this path, and lines about what it does otherwise than one that would be trained here."""
    tokenizer = open_existing(Path(path))
    check_fits(tokenizer, settings)
    check_sampling(tokenizer, settings, subword_sampling)
    print(f"using the tokenizer {path} as it is", flush=True)
    for remark in remarks(tokenizer, settings):
        print(remark, file=sys.stderr)
    return tokenizer


def _train_tokenizer(pairs: SentencePairs, settings: TokenizerConfig) -> Tokenizer:
    """On every k-th pair, so that no part of the corpus is left out."""
    step = -(-len(pairs) // settings.sample_sentences)
    sources = (source for source, _ in islice(pairs, 0, None, step))
    targets = (target for _, target in islice(pairs, 0, None, step))
    return Tokenizer.train(sources, targets, settings)


def _kept(pairs: Iterable[Pair], counts: PairCounts, max_length: int, max_ratio: float) -> Iterator[Pair]:
    """The pairs that stay; `counts` says what became of the others. Raises CorpusError if none stays."""
    for text, ids in pairs:
        if counts.keep(ids, max_length, max_ratio):
            yield text, ids
    if not counts.kept:
        raise CorpusError(
            f"none of {counts.read:,} pairs is left (left out: {counts.drops}); look at the text that "
            "corpus.train and corpus.valid name, or raise corpus.max_length or corpus.max_ratio"
        )


def _encoded(pairs: SentencePairs, tokenizer: Tokenizer, name: str) -> Iterator[Pair]:
    """Text and ids of each pair."""
    remaining = iter(tqdm(pairs, desc=name, unit=" pairs", disable=None))
    while block := list(islice(remaining, _BLOCK)):
        sources = tokenizer.encode_source([source for source, _ in block])
        targets = tokenizer.encode_target([target for _, target in block])
        yield from zip(block, zip(sources, targets, strict=True), strict=True)


def _write_summary(  # last of all: where it is, the stage is finished
    directory: Path,
    config: Config,
    digests: dict[str, str],
    counts: dict[str, PairCounts],
    overlaps: dict[str, Overlap],
    tokenizer: Tokenizer,
) -> None:
    read_the_hub = ["datasets"] if sys.modules.get("datasets") else []  # else it may not be installed
    packages = {name: version(name) for name in ["sentencepiece", "numpy", *read_the_hub]}
    content: dict[str, Any] = {
        "corpus": config.corpus.model_dump(),
        "tokenizer": config.tokenizer.model_dump(),
        "digests": digests,
        "counts": {name: asdict(count) for name, count in counts.items()},
        "also_in_training": {name: overlap.counts for name, overlap in overlaps.items()},
        "mean_lengths": {name: count.mean_lengths for name, count in counts.items()},
        "vocabulary": {"source": tokenizer.source_vocab_size, "target": tokenizer.target_vocab_size},
        "tokenizer_digest": tokenizer.digest,
        "versions": {"transformer_mt": __version__, "python": platform.python_version(), **packages},
    }
    summary = (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
    write_data_sums(directory, summary, config.corpus.test)
    write_whole(directory / SUMMARY, summary)


def _report(
    counts: dict[str, PairCounts], tokenizer: Tokenizer, test_sizes: dict[str, int], overlaps: dict[str, Overlap]
) -> None:
    for name, count in counts.items():
        means = count.mean_lengths
        print(
            f"{name}: {counted(count.kept, 'pair')} of {count.read:,} (left out: {count.drops}); "
            f"mean length {means['source']} source and {means['target']} target pieces"
        )
    for name, size in test_sizes.items():
        print(f"{name}: {counted(size, 'pair')}")
    for name, overlap in overlaps.items():
        if any(overlap.counts.values()):
            print(overlap.description(name))
    sizes = f"{tokenizer.source_vocab_size:,} source and {tokenizer.target_vocab_size:,} target pieces"
    print("vocabulary:", f"{tokenizer.source_vocab_size:,} pieces for both" if tokenizer.joint else sizes)


if __name__ == "__main__":
    sys.exit(cli.run(main))
