"""Reads parallel text: two files, where line n of one is the translation of line n of the other."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from transformer_mt.corpora.corpus import BadPair, Block, Corpus
from transformer_mt.corpora.lines import BadLine, has_faults, line_blocks
from transformer_mt.corpora.local_files import local_files, parallel_files
from transformer_mt.corpora.text_files import Survey, opened_again, survey
from transformer_mt.errors import CorpusError
from transformer_mt.settings.bounds import fingerprint
from transformer_mt.settings.corpus import PairedText
from transformer_mt.wording import counted

Lines = Sequence[str | BadLine]


def open_parallel(text: PairedText) -> Corpus:
    """Open two files, or as many pairs of files as patterns match.

    Raises CorpusError if one is missing, if two differ in length, or if they are all empty.
    """
    files = files_of(text)
    surveys = [(survey(source), survey(target)) for source, target in files]
    for (source, target), (of_source, of_target) in zip(files, surveys, strict=True):
        check_lengths(str(source), of_source, str(target), of_target)
    num_pairs = sum(of_source.num_lines for of_source, _ in surveys)
    if num_pairs == 0:
        raise CorpusError(f"{text.place}: empty; name files with sentences in them")

    def blocks() -> Iterator[Block]:
        for (source, target), (of_source, of_target) in zip(files, surveys, strict=True):
            lines = _lines(source, of_source.digest), _lines(target, of_target.digest)
            yield from parallel_blocks(lines[0], str(source), lines[1], str(target))

    digest = fingerprint(*(one.digest for both in surveys for one in both))
    return Corpus(tuple(path for both in files for path in both), blocks, lambda: digest, num_pairs)


def files_of(text: PairedText) -> list[tuple[Path, Path]]:
    """Return the pairs of files. Raises CorpusError if one is missing, or is no regular file."""
    if text.prefix is not None:
        return parallel_files(text.prefix, str(text.source), str(text.target))
    sources, targets = local_files(str(text.source)), local_files(str(text.target))
    if len(sources) != len(targets):
        raise CorpusError(
            f"{text.source} matches {counted(len(sources), 'file')}, but {text.target} matches {len(targets):,}: file "
            "n of one, in alphabetical order, must be the translation of file n of the other"
        )
    return list(zip(sources, targets, strict=True))


def check_lengths(source: str, of_source: Survey, target: str, of_target: Survey) -> None:
    """Raises CorpusError if two files, which messages call so, have different numbers of lines."""
    if of_source.num_lines != of_target.num_lines:
        raise CorpusError(
            f"{source} has {counted(of_source.num_lines, 'line')}, but {target} has {of_target.num_lines:,}: line n of "
            "one must be the translation of line n of the other"
        )


def parallel_blocks(sources: Iterator[Lines], source: str, targets: Iterator[Lines], target: str) -> Iterator[Block]:
    """Put the lines of two files, which messages call `source` and `target`, side by side."""
    first, nothing = 1, list[str | BadLine]()
    for of_source, of_target in zip_longest(sources, targets, fillvalue=nothing):
        if len(of_source) != len(of_target):
            raise CorpusError(f"{source} and {target} have changed while they were read; give the same command again")
        yield Block(source, first, _pairs(of_source, of_target, target))
        first += len(of_source)


def _lines(path: Path, digest: str) -> Iterator[Lines]:
    # Each file has its own, so that an error names the right one.
    with opened_again(path, digest) as file:
        yield from line_blocks(file, str(path))


def _pairs(sources: Lines, targets: Lines, file_of_targets: str) -> Sequence[tuple[str, str] | BadPair]:
    if not has_faults(sources) and not has_faults(targets):
        return list(zip(sources, targets, strict=True))  # type: ignore[arg-type]  # all are texts
    return [_pair(*lines, file_of_targets) for lines in zip(sources, targets, strict=True)]


def _pair(source: str | BadLine, target: str | BadLine, file_of_targets: str) -> tuple[str, str] | BadPair:
    if isinstance(source, BadLine):
        return BadPair(source.fault)
    if isinstance(target, BadLine):
        return BadPair(f"its translation, the same line of {file_of_targets}, {target.fault}")
    return source, target
