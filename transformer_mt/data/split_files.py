"""Writes the validation and test sets into a data_dir: text to score, and token ids for validation."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from transformer_mt.corpora.corpus import BAD_LINE, BadPair, Corpus
from transformer_mt.corpora.filters import PieceFilters
from transformer_mt.corpora.held_out import HeldOut
from transformer_mt.data.data_directory import writing
from transformer_mt.data.encoded_files import write_encoded
from transformer_mt.data.pair_counts import EncodedPair, PairCounts
from transformer_mt.data.tags import tagged
from transformer_mt.data.tokenizer import Tokenizer, clean
from transformer_mt.errors import CorpusError
from transformer_mt.line_progress import LineProgress

Pair = tuple[tuple[str, str], EncodedPair]  # text and ids


def held_out_of(sets: Mapping[str, Corpus]) -> HeldOut:
    """Read the validation and test sets. Raises CorpusError at a pair that cannot be read."""
    return HeldOut.of({name: ((clean(a), clean(b)) for a, b in corpus.pairs()) for name, corpus in sets.items()})


def encoded(pairs: Corpus, tokenizer: Tokenizer, name: str, tag: str = "") -> Iterator[Pair | BadPair]:
    """Yield the text and ids of each pair. The source begins with the tag, if there is one.

    Raises CorpusError at a pair that cannot be read: a set is scored whole.
    """
    with LineProgress(pairs.num_pairs, doing=f"{name}: ", unit="pairs") as progress:
        for block in pairs.blocks():
            texts = [(tagged(tag, pair[0]), pair[1]) for pair in block.pairs if not isinstance(pair, BadPair)]
            sources = tokenizer.encode_source([source for source, _ in texts])
            targets = tokenizer.encode_target([target for _, target in texts])
            found = zip(texts, zip(sources, targets, strict=True), strict=True)
            for index, pair in enumerate(block.pairs):
                if isinstance(pair, BadPair) and pair.reason == BAD_LINE:
                    raise CorpusError(f"{block.place(index)}: {pair.fault}")
                yield pair if isinstance(pair, BadPair) else next(found)
            progress.more(len(block.pairs))


def write_validation(
    directory: Path, pairs: Iterator[Pair | BadPair], pieces: PieceFilters, tokenizer: Tokenizer
) -> PairCounts:
    """Write token ids and text of the pairs that stay: perplexity is measured on the ids, BLEU on the text.

    Raises CorpusError if none stays.
    """
    counts = PairCounts()
    with writing(directory / "valid"), _text_files(directory / "valid") as write:

        def rows() -> Iterator[EncodedPair]:
            for pair in pairs:
                if isinstance(pair, BadPair):
                    counts.dropped[pair.reason] += 1
                    continue
                text, ids = pair
                if reason := pieces.reason(len(ids[0]) - 1, len(ids[1]) - 1):
                    counts.dropped[reason] += 1
                    continue
                counts.keep(ids)
                write(text)
                yield ids
            check_some_left(counts)

        write_encoded(directory / "valid", rows(), tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    return counts


def write_test_set(prefix: Path, pairs: Iterator[Pair | BadPair], max_positions: int) -> None:
    """Write all lines in order: a test set is scored whole. Raises CorpusError if one is too long for the model."""
    good = (pair for pair in pairs if not isinstance(pair, BadPair))
    with writing(prefix), _text_files(prefix) as write:
        for number, (text, (source, _)) in enumerate(good, start=1):
            if len(source) > max_positions:
                raise CorpusError(
                    f"{prefix.parent.name} set {prefix.name}: source line {number} has {len(source)} pieces, and the "
                    f"model takes at most model.max_positions={max_positions}; raise it or split the line"
                )
            write(text)


def check_some_left(counts: PairCounts) -> None:
    """Raises CorpusError if no pair is left."""
    if not counts.kept:
        raise CorpusError(
            f"none of {counts.read:,} pairs is left (left out: {counts.drops}); look at the text that "
            "corpus.train and corpus.valid name; or raise corpus.max_length or corpus.max_ratio, or switch filters "
            "off, as by filters.held_out=false"
        )


@contextmanager
def _text_files(prefix: Path) -> Iterator[Callable[[tuple[str, str]], None]]:
    """Yields a function that writes the next line of PREFIX.source.txt and of PREFIX.target.txt."""
    prefix.parent.mkdir(exist_ok=True)
    with (
        Path(f"{prefix}.source.txt").open("w", encoding="utf-8", newline="\n") as sources,
        Path(f"{prefix}.target.txt").open("w", encoding="utf-8", newline="\n") as targets,
    ):

        def write(pair: tuple[str, str]) -> None:
            sources.write(pair[0] + "\n")
            targets.write(pair[1] + "\n")

        yield write
