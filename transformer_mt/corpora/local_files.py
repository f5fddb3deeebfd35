"""Finds the files that a name in the configuration means, and opens files that contain both sides."""

import re
from collections.abc import Callable, Iterable, Iterator
from glob import escape, glob
from pathlib import Path

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.wording import counted
from transformer_mt.corpora.corpus import Block, Corpus
from transformer_mt.corpora.text_files import COMPRESSED, Survey, survey
from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.settings.section import fingerprint

_PATTERN = re.compile(r"[*?\[]")


def local_files(name: str) -> tuple[Path, ...]:
    """Return the file with this name, or those that match it, in alphabetical order. Raises CorpusError if none is."""
    path = Path(name)
    paths: tuple[Path, ...] = (path,)
    if _PATTERN.search(name) and not path.exists():
        paths = tuple(Path(found) for found in sorted(glob(name, recursive=True)))
        if not paths:
            raise CorpusError(f"{name}: no file matches this pattern; correct it in corpus")
    _check_regular(paths)
    return paths


def _check_regular(paths: Iterable[Path]) -> None:
    """Raises CorpusError for a pipe or a device, and for files in /proc, which may only look like regular files."""
    for path in paths:
        if path.exists() and (not path.is_file() or path.resolve().is_relative_to("/proc")):
            raise CorpusError(
                f"{path}: is not a regular file, but `prepare` reads a corpus several times; write the text to a file, "
                "compressed or not, and name that file"
            )


def parallel_files(prefix: str, source: str, target: str) -> list[tuple[Path, Path]]:
    """Return the files PREFIX.source and PREFIX.target, or all pairs of a pattern. Raises CorpusError."""
    named = [f"{prefix}.{language}{ending}" for language in (source, target) for ending in ("", *COMPRESSED)]
    is_pattern = _PATTERN.search(prefix) is not None and not any(Path(name).is_file() for name in named)
    pattern = prefix if is_pattern else escape(prefix)
    sides = [_matches(pattern, language) for language in (source, target)]
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


def _matches(pattern: str, language: str) -> dict[str, Path]:
    """Return the files of a language by their prefix. If a file exists in several forms, prefer the uncompressed."""
    found: dict[str, Path] = {}
    for ending in ("", *COMPRESSED):
        for name in glob(f"{pattern}.{escape(language)}{ending}", recursive=True):
            found.setdefault(name.removesuffix(ending).removesuffix(f".{language}"), Path(name))
    return found


def open_files(
    text: PairedText,
    read: Callable[[Path, str], Iterator[Block]],
    count: Callable[[Path, Survey], int | None] = lambda path, of_file: None,
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
