"""Reads parallel text: two files, where line n of one is the translation of line n of the other."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from transformer_mt.corpora.corpus import BadPair, Block, Corpus
from transformer_mt.corpora.lines import BadLine, has_faults, line_blocks
from transformer_mt.corpora.local_files import local_files, parallel_files
from transformer_mt.corpora.text_files import ByteStream, opened, same_text, survey_of
from transformer_mt.errors import CorpusError
from transformer_mt.settings.bounds import fingerprint
from transformer_mt.settings.corpus import PairedText
from transformer_mt.wording import counted

Lines = Sequence[str | BadLine]


class OneSide(NamedTuple):
    """A file of one language, or the member of an archive."""

    name: str
    """As messages show it."""
    open: Callable[[], AbstractContextManager[ByteStream]]

    def line_blocks(self, digest: str) -> Iterator[Lines]:
        """Read the lines. At their end, raises CorpusError if the text does not have this digest."""
        with self.open() as file, same_text(file, digest, self.name) as hashed:
            yield from line_blocks(hashed, self.name)


def open_parallel(text: PairedText) -> Corpus:
    """Open two files, or as many pairs of files as patterns match. Raises CorpusError as `open_sides` does."""
    files = files_of(text)
    paths = tuple(path for both in files for path in both)
    return open_sides(text, paths, [(_side(source), _side(target)) for source, target in files])


def open_sides(text: PairedText, paths: tuple[Path, ...], sides: Sequence[tuple[OneSide, OneSide]]) -> Corpus:
    """Open pairs of sources and targets, which are in these files.

    Raises CorpusError if one cannot be read, if two differ in length, or if they are all empty.
    """
    surveys = []
    for source, target in sides:
        with source.open() as source_file, target.open() as target_file:
            surveys.append((survey_of(source_file), survey_of(target_file)))
        num_source, num_target = (of_side.num_lines for of_side in surveys[-1])
        if num_source != num_target:
            raise CorpusError(
                f"{source.name} has {counted(num_source, 'line')}, but {target.name} has {num_target:,}: line n of one "
                "must be the translation of line n of the other"
            )
    num_pairs = sum(of_source.num_lines for of_source, _ in surveys)
    if num_pairs == 0:
        raise CorpusError(f"{text.place}: empty; name files with sentences in them")
    digest = fingerprint(*(one.digest for both in surveys for one in both))

    def blocks() -> Iterator[Block]:
        for both, of_both in zip(sides, surveys, strict=True):
            yield from _blocks(*both, *(of_side.digest for of_side in of_both))

    return Corpus(paths, blocks, lambda: digest, num_pairs)


def files_of(text: PairedText) -> list[tuple[Path, Path]]:
    """Return the pairs of files. Raises CorpusError if one is missing, or is no regular file."""
    if text.path is not None:
        return parallel_files(text.path, str(text.source), str(text.target))
    sources, targets = local_files(str(text.source)), local_files(str(text.target))
    if len(sources) != len(targets):
        raise CorpusError(
            f"{text.source} matches {counted(len(sources), 'file')}, but {text.target} matches {len(targets):,}: file "
            "n of one, in alphabetical order, must be the translation of file n of the other"
        )
    return list(zip(sources, targets, strict=True))


def _side(path: Path) -> OneSide:
    return OneSide(str(path), partial(opened, path))


def _blocks(source: OneSide, target: OneSide, source_digest: str, target_digest: str) -> Iterator[Block]:
    """Put the lines of two files side by side."""
    first, nothing = 1, list[str | BadLine]()
    both = source.line_blocks(source_digest), target.line_blocks(target_digest)
    for sources, targets in zip_longest(*both, fillvalue=nothing):
        if len(sources) != len(targets):
            raise CorpusError(
                f"{source.name} and {target.name} have changed while they were read; give the same command again"
            )
        yield Block(source.name, first, _pairs(sources, targets, target.name))
        first += len(sources)


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
