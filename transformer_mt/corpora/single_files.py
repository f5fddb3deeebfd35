"""Opens corpora of which each file holds both sides."""

from collections.abc import Callable, Iterator
from pathlib import Path

from transformer_mt.corpora.corpus import Block, Corpus
from transformer_mt.corpora.local_files import local_files
from transformer_mt.corpora.text_files import Survey, survey
from transformer_mt.errors import CorpusError
from transformer_mt.settings.bounds import fingerprint
from transformer_mt.settings.corpus import PairedText


def open_files(
    text: PairedText,
    read: Callable[[Path, str], Iterator[Block]],
    count: Callable[[Path, Survey], int | None] = lambda path, of_file: None,
) -> Corpus:
    """Open a file, or all that a pattern matches, to read one after the other.

    `read` gets a file and the digest of its survey, with which it compares what it has read. `count` tells how many
    pairs a file has, from the file and its survey; None: only reading it can tell.
    Raises CorpusError if a file is missing, or cannot be read to its end, or if all are empty.
    """
    paths = local_files(text.place)
    surveys = [survey(path) for path in paths]
    counts = [count(path, of_file) for path, of_file in zip(paths, surveys, strict=True)]
    known = [number for number in counts if number is not None]
    num_pairs = sum(known) if len(known) == len(paths) else None
    if num_pairs == 0 or not any(of_file.num_lines for of_file in surveys):
        raise CorpusError(f"{text.place}: empty; name files with sentences in them")

    def blocks() -> Iterator[Block]:
        for path, of_file in zip(paths, surveys, strict=True):
            yield from read(path, of_file.digest)

    digest = fingerprint(*(of_file.digest for of_file in surveys))
    return Corpus(paths, blocks, lambda: digest, num_pairs)
