"""The pairs of a corpus, in blocks, with the place of each, and the files that a name in the configuration means."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import escape, glob
from itertools import islice
from pathlib import Path

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.remote import Place, RemotePath, place
from transformer_mt.base.wording import counted
from transformer_mt.corpora.text_files import COMPRESSED, LONGEST, BadLine, Survey, all_lines, opened, same_text, survey
from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.settings.section import fingerprint

BLOCK = 2000  # pairs: several blocks for each process fit into memory, and passing a block to a process is cheap
_SURROGATE, _LINE_ENDS = re.compile("[\ud800-\udfff]"), re.compile(r"[\r\n]+")
BAD_LINE = "bad_line"
OTHER_LANGUAGES = "other_languages"
LOW_SCORE = "low_score"


@dataclass(frozen=True)
class BadPair:
    """A line, row or unit from which no pair can be read."""

    fault: str
    """What is wrong and what to do, as words to put after the place: "has 1 column, but …"."""
    reason: str = BAD_LINE
    """The reason in REASONS under which it counts. Only BAD_LINE is a mistake. OTHER_LANGUAGES is for the units of a
    translation memory without one of the two languages, LOW_SCORE for pairs below `min_score`: both are left out."""


@dataclass(frozen=True)
class Block:
    """Successive pairs of one file. The limits of blocks depend only on the text, not on the machine."""

    file: str
    """The file, or the name of the data set, as messages show it."""
    first: int
    """The number of the first pair in the file, from 1: its line, row or unit."""
    pairs: Sequence[tuple[str, str] | BadPair]
    """Source and target of each pair, each a line of text; at most BLOCK pairs."""
    unit: str = "line"
    """What the numbers count: line, row or unit."""

    def place(self, index: int) -> str:
        """Return the file and the number of a pair of the block, for messages. Indices begin with 0."""
        number = self.first + index
        return f"{self.file}:{number}" if self.unit == "line" else f"{self.file} ({self.unit} {number:,})"

    def check(self) -> None:
        """Raises CorpusError, which names the place, at the first bad line."""
        for index, pair in enumerate(self.pairs):
            if isinstance(pair, BadPair) and pair.reason == BAD_LINE:
                raise CorpusError(f"{self.place(index)}: {pair.fault}")


@dataclass(frozen=True)
class Corpus:
    """The pairs of a corpus. They are not kept in memory: each call of `blocks` or `pairs` reads them again."""

    blocks: Callable[[], Iterator[Block]]
    """Reads all pairs, in order. Raises CorpusError if a file, not only a line, cannot be read."""
    digest: Callable[[], str]
    """The SHA-256, hexadecimal, of the text; for the hub, of the name and the revision only."""
    num_pairs: int | None
    """The number of pairs, bad pairs included; None if it is unknown before reading them all."""

    def pairs(self, skip_bad: bool = False) -> Iterator[tuple[str, str]]:
        """Read all pairs, in order. Unless `skip_bad`, raises CorpusError as `Block.check` does."""
        for block in self.blocks():
            if not skip_bad:
                block.check()
            yield from (pair for pair in block.pairs if not isinstance(pair, BadPair))


def blocks_of_file(
    file: str, pairs: Iterable[tuple[str, str] | BadPair], unit: str = "line", first: int = 1
) -> Iterator[Block]:
    """Group the pairs of a file, in order, into blocks. `first` is the number of its first pair."""
    remaining = iter(pairs)
    while block := list(islice(remaining, BLOCK)):
        yield Block(file, first, block, unit)
        first += len(block)


def pair_of_texts(source: str, target: str) -> tuple[str, str] | BadPair:
    """Return a pair of unchecked texts, each turned into one line; or the fault of one of them."""
    for side, text in (("source", source), ("target", target)):
        if "\0" in text:
            return BadPair(f"{side} contains the character NUL (U+0000); remove it")
        if not text.isascii() and _SURROGATE.search(text):
            return BadPair(f"{side} contains half a character (a surrogate); write the complete character")
        if len(text) > LONGEST:
            return BadPair(f"{side} has {len(text):,} characters; each side should be a sentence")
    return _LINE_ENDS.sub(" ", source), _LINE_ENDS.sub(" ", target)


_PATTERN = re.compile(r"[*?\[]")


def local_files(name: str) -> tuple[Place, ...]:
    """Return the file with this name, or those that match it, in alphabetical order. Raises CorpusError if none is."""
    path = place(name)
    paths: tuple[Place, ...] = (path,)
    if _PATTERN.search(name) and not path.exists():
        paths = tuple(map(place, _matching(path)))
        if not paths:
            raise CorpusError(f"{name}: no file matches this pattern; correct it in corpus")
    _check_regular(paths)
    return paths


def _matching(pattern: Place) -> list[str]:
    return pattern.matches() if isinstance(pattern, RemotePath) else sorted(glob(str(pattern), recursive=True))


def _check_regular(paths: Iterable[Place]) -> None:
    """Raises CorpusError for a pipe or a device, and for files in /proc, which may only look like regular files."""
    for path in paths:
        if isinstance(path, RemotePath) or not path.exists():
            continue
        if not path.is_file() or path.resolve().is_relative_to("/proc"):
            raise CorpusError(
                f"{path}: is not a regular file, but `prepare` reads a corpus several times; write the text to a file, "
                "compressed or not, and name that file"
            )


def parallel_files(prefix: str, source: str, target: str) -> list[tuple[Place, Place]]:
    """Return the files PREFIX.source and PREFIX.target, or all pairs of a pattern. Raises CorpusError."""
    named = [f"{prefix}.{language}{ending}" for language in (source, target) for ending in ("", *COMPRESSED)]
    is_pattern = _PATTERN.search(prefix) is not None and not any(place(name).exists() for name in named)
    sides = [_matches(prefix, language, is_pattern) for language in (source, target)]
    for language, found in zip((source, target), sides, strict=True):
        if not found:
            cure = "" if is_pattern else "; or name both files: {source: FILE, target: FILE}"
            if not is_pattern and Path(prefix).is_file():  # the user named a single file
                cure = f"; or give the form of this file, if it contains both sides: {{path: {prefix}, form: tsv}}"
            raise CorpusError(
                f"{prefix}.{language}: no file has this name, with or without {', '.join(COMPRESSED)}; correct the "
                f"prefix '{prefix}' or the language '{language}' in corpus{cure}"
            )
        _check_regular(found.values())
    if lone := sides[0].keys() ^ sides[1].keys():
        first = min(lone)
        here, missing = (source, target) if first in sides[0] else (target, source)
        raise CorpusError(
            f"{prefix} matches {counted(len(sides[0]), 'file')} of {source} and {len(sides[1]):,} of {target}: "
            f"{first}.{here} is there, but {first}.{missing} is not; each file needs its translation"
        )
    return [(sides[0][common], sides[1][common]) for common in sorted(sides[0])]


def _matches(prefix: str, language: str, is_pattern: bool) -> dict[str, Place]:
    """Return the files of a language by their prefix. If a file exists in several forms, prefer the uncompressed."""
    found: dict[str, Place] = {}
    for ending in ("", *COMPRESSED):
        path = place(f"{prefix}.{escape(language) if is_pattern else language}{ending}")
        names = _matching(path) if is_pattern else [str(path)] if path.exists() else []
        for name in names:
            found.setdefault(name.removesuffix(ending).removesuffix(f".{language}"), place(name))
    return found


def open_files(
    text: PairedText,
    read: Callable[[Place, str], Iterator[Block]],
    count: Callable[[Place, Survey], int | None] = lambda path, of_file: None,
) -> Corpus:
    """Open a file, or all files that match a pattern, to read one after the other.

    `read` yields the pairs of a file, and checks that the file still has the digest of its survey. `count` returns the
    number of pairs in a file, given its survey; None if it is unknown before reading the pairs.
    Raises CorpusError if a file is missing or cannot be read to its end, or if all are empty.
    """
    paths = local_files(text.place)
    surveys = [survey(path) for path in paths]
    counts = [count(path, of_file) for path, of_file in zip(paths, surveys, strict=True)]
    known = [number for number in counts if number is not None]
    num_pairs = sum(known) if len(known) == len(paths) else None
    if num_pairs == 0 or not any(of_file.num_lines for of_file in surveys):
        raise CorpusError(f"{text.place}: contains no pairs; name files with sentences in them")

    def blocks() -> Iterator[Block]:
        for path, of_file in zip(paths, surveys, strict=True):
            yield from read(path, of_file.digest)

    digest = fingerprint(*(of_file.digest for of_file in surveys))
    return Corpus(blocks, lambda: digest, num_pairs)


def open_lines(
    text: PairedText,
    pairs: Callable[[PairedText, Place, Iterator[str | BadLine]], Iterator[tuple[str, str] | BadPair]],
    count: Callable[[int], int | None],
    unit: str = "line",
    first: int = 1,
) -> Corpus:
    """Open files of lines. Raises the CorpusErrors of `open_files`, and of `pairs` about the beginning of a file.

    `pairs` makes the pairs of a file from its lines; the number of its first pair is `first`. `count` returns the
    number of pairs in a file with this number of lines; None if it is unknown before reading the pairs.
    """

    def read(path: Place, digest: str) -> Iterator[Block]:
        with opened(path) as text_file, same_text(text_file, digest, str(path)) as file:
            yield from blocks_of_file(str(path), pairs(text, path, all_lines(file, str(path))), unit, first)

    def count_pairs(path: Place, of_file: Survey) -> int | None:
        next(read(path, of_file.digest), None)  # so that a missing column of a table is an error at the start
        return count(of_file.num_lines)

    return open_files(text, read, count_pairs)
