"""Writes the validation and test sets into a data_dir: text to score, and token ids for validation."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_mt.corpora.corpus import BadPair, Corpus
from transformer_mt.data.data_directory import writing
from transformer_mt.data.encoded_files import write_encoded
from transformer_mt.data.pair_counts import EncodedPair
from transformer_mt.data.pair_filter import Encoded, Pair
from transformer_mt.data.tags import tagged
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import CorpusError
from transformer_mt.line_progress import LineProgress


def encoded(pairs: Corpus, tokenizer: Tokenizer, name: str, tag: str = "") -> Iterator[Encoded]:
    """Yield the place of each pair, and its text and ids. The source begins with the tag, if there is one."""
    with LineProgress(pairs.num_pairs, doing=f"{name}: ", unit="pairs") as progress:
        for block in pairs.blocks():
            texts = [pair for pair in block.pairs if not isinstance(pair, BadPair)]
            if tag:
                texts = [(tagged(tag, source), target) for source, target in texts]
            sources = tokenizer.encode_source([source for source, _ in texts])
            targets = tokenizer.encode_target([target for _, target in texts])
            found = zip(texts, zip(sources, targets, strict=True), strict=True)
            for index, pair in enumerate(block.pairs):
                yield block.place(index), pair if isinstance(pair, BadPair) else next(found)
            progress.more(len(block.pairs))


def write_validation(directory: Path, pairs: Iterable[Pair], tokenizer: Tokenizer) -> None:
    """Write token ids and text of the same pairs: perplexity is measured on the ids, BLEU on the text."""
    with writing(directory / "valid"), _text_files(directory / "valid") as write:

        def rows() -> Iterator[EncodedPair]:
            for text, ids in pairs:
                write(text)
                yield ids

        write_encoded(directory / "valid", rows(), tokenizer.source_vocab_size, tokenizer.target_vocab_size)


def write_test_set(prefix: Path, pairs: Iterable[Pair], max_positions: int) -> None:
    """Write all lines in order: a test set is scored whole. Raises CorpusError if one is too long for the model."""
    with writing(prefix), _text_files(prefix) as write:
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
    prefix.parent.mkdir(exist_ok=True)
    with (
        Path(f"{prefix}.source.txt").open("w", encoding="utf-8", newline="\n") as sources,
        Path(f"{prefix}.target.txt").open("w", encoding="utf-8", newline="\n") as targets,
    ):

        def write(pair: tuple[str, str]) -> None:
            sources.write(pair[0] + "\n")
            targets.write(pair[1] + "\n")

        yield write
