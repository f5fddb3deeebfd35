"""Writes the files of each split into a data_dir: token ids for training and validation, text to score."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_mt.data.encoded import write_encoded
from transformer_mt.data.overlaps import OverlapCounter
from transformer_mt.data.pair_counts import EncodedPair, PairCounts
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.data.training_lines import TrainingLinesCounter
from transformer_mt.errors import CorpusError

Pair = tuple[tuple[str, str], EncodedPair]  # text and ids


def write_training(
    directory: Path,
    kept: Iterable[Pair],
    counts: PairCounts,
    tokenizer: Tokenizer,
    lines: TrainingLinesCounter,
    overlaps: OverlapCounter,
) -> None:
    """Write the token ids, and train.lines: the line of each pair in the training text, from 1, as int64.

    `lines` and `overlaps` are given each pair too.
    """
    with (directory / "train.lines").open("wb") as numbers:

        def rows() -> Iterator[EncodedPair]:
            for text, ids in kept:
                numbers.write(counts.read.to_bytes(8, "little"))
                lines.add(text[0], len(ids[0]) - 1, len(ids[1]) - 1)
                overlaps.add(text, counts.read)
                yield ids

        write_encoded(directory / "train", rows(), tokenizer.source_vocab_size, tokenizer.target_vocab_size)


def write_validation(directory: Path, kept: Iterable[Pair], tokenizer: Tokenizer) -> None:
    """Write token ids and text of the same pairs: perplexity is measured on the ids, BLEU on the text."""
    with _text_files(directory / "valid") as write:

        def rows() -> Iterator[EncodedPair]:
            for text, ids in kept:
                write(text)
                yield ids

        write_encoded(directory / "valid", rows(), tokenizer.source_vocab_size, tokenizer.target_vocab_size)


def write_test_set(prefix: Path, pairs: Iterable[Pair], max_positions: int) -> None:
    """Write all lines in order: a test set is scored whole. Raises CorpusError if one is too long for the model."""
    prefix.parent.mkdir(exist_ok=True)
    with _text_files(prefix) as write:
        for number, (text, (source, _)) in enumerate(pairs, start=1):
            if len(source) > max_positions:
                raise CorpusError(
                    f"{prefix.parent.name} set {prefix.name}: source line {number} has {len(source)} pieces, and the "
                    f"model takes at most model.max_positions={max_positions}; raise it or split the line"
                )
            write(text)


@contextmanager
def _text_files(prefix: Path) -> Iterator[Callable[[tuple[str, str]], None]]:
    """Yields a function that writes the next line of PREFIX.source.txt and of PREFIX.target.txt."""
    with (
        Path(f"{prefix}.source.txt").open("w", encoding="utf-8", newline="\n") as sources,
        Path(f"{prefix}.target.txt").open("w", encoding="utf-8", newline="\n") as targets,
    ):

        def write(pair: tuple[str, str]) -> None:
            sources.write(pair[0] + "\n")
            targets.write(pair[1] + "\n")

        yield write
