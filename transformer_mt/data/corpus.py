"""Reads sentence pairs from local files or from the Hugging Face hub."""

import gzip
import hashlib
import io
import logging
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformer_mt.errors import CorpusError
from transformer_mt.settings.experiment import CorpusConfig, Split
from transformer_mt.settings.reading import fingerprint
from transformer_mt.wording import counted

_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 20  # bytes
_log = logging.getLogger(__name__)

# What to do with bytes that are not UTF-8: name the line and stop, or write U+FFFD in their place.
InvalidText = Literal["strict", "replace"]


@dataclass(frozen=True)
class SentencePairs:
    """The sentence pairs of a split. They are read anew in each iteration, and are not held in memory."""

    num_pairs: int
    _begin: Callable[[], Iterator[tuple[str, str]]]

    def __len__(self) -> int:
        return self.num_pairs

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return self._begin()


def read_lines(path: Path, errors: InvalidText = "strict") -> Iterator[str]:
    """Read the lines of a UTF-8 file, which is unpacked if its name ends in .gz, as `decode_lines` does.

    Raises CorpusError if the file cannot be read, or if a line is not UTF-8.
    """
    with opened(path) as file:
        yield from decode_lines(file, str(path), errors)


def decode_lines(file: Iterable[bytes], name: str, errors: InvalidText = "strict") -> Iterator[str]:
    """Decode lines of UTF-8, and remove their line ends.

    Only "\\n" ends a line; U+2028 and other line separators do not. Carriage returns before it are removed, and so is a
    byte order mark at the start of the file. With errors="strict", bytes that are not UTF-8 raise CorpusError, which
    names the line; with "replace", they become U+FFFD, and a warning names the first such line.
    """
    warned = False
    for number, raw in enumerate(file, start=1):
        line = (raw.removeprefix(_BOM) if number == 1 else raw).removesuffix(b"\n").rstrip(b"\r")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            place = f"{name}:{number}: is not UTF-8 (byte 0x{line[error.start]:02x})"
            if errors == "strict":
                raise CorpusError(f"{place}; convert it, as in `iconv -f LATIN1 -t UTF-8`") from None
            if not warned:
                _log.warning("warning: %s; such bytes are replaced by U+FFFD, here and below", place)
            warned = True
            yield line.decode("utf-8", errors="replace")


def open_pairs(corpus: CorpusConfig, split: Split) -> SentencePairs:
    """Open the sentence pairs of a split, and count them.

    If `split` is a text, it names a split of the hub data set `corpus.dataset`, or without one the prefix of two files.
    Raises CorpusError if files, split or columns are missing, if the files differ in length, or if there are no pairs.
    """
    if corpus.dataset is not None and isinstance(split, str):
        return _hub_pairs(corpus, split)
    source, target = _files(corpus, split)
    num_sources, num_targets = count_lines(source), count_lines(target)
    if num_sources != num_targets:
        raise CorpusError(
            f"{source} has {counted(num_sources, 'line')}, but {target} has {num_targets:,}: line n of one must be "
            "the translation of line n of the other"
        )
    if num_sources == 0:
        raise CorpusError(f"{source} and {target} are empty; name files with sentences in them")
    return SentencePairs(num_sources, lambda: zip(read_lines(source), read_lines(target), strict=True))


def split_digest(corpus: CorpusConfig, split: Split) -> str:
    """Return the SHA-256, hexadecimal, of the text in local files, or of the names of a hub split, without its text."""
    if corpus.dataset is not None and isinstance(split, str):
        return fingerprint(corpus.dataset, corpus.subset or "", corpus.revision or "", split)
    return fingerprint(*(_file_digest(path) for path in _files(corpus, split)))


def corpus_files(corpus: CorpusConfig, split: Split) -> list[Path]:
    """Return the files of a split; a split of the hub has none. Raises CorpusError if one is missing."""
    return [] if corpus.dataset is not None and isinstance(split, str) else list(_files(corpus, split))


def _files(corpus: CorpusConfig, split: Split) -> tuple[Path, Path]:
    if not isinstance(split, str):
        paths = Path(split.source), Path(split.target)
        for path in paths:
            if path.exists() and not path.is_file():
                raise CorpusError(
                    f"{path}: is not a regular file, but a corpus is read several times; write it to a file, or to a "
                    ".gz, and name that"
                )
        return paths
    return _file(split, corpus.source_language), _file(split, corpus.target_language)


def _file(prefix: str, language: str) -> Path:
    candidates = [Path(f"{prefix}.{language}"), Path(f"{prefix}.{language}.gz")]
    for path in candidates:
        if path.is_file():
            return path
    raise CorpusError(
        f"{candidates[0]}: no such file, nor {candidates[1].name}; correct the prefix '{prefix}' or the "
        f"language '{language}' in corpus, or name both files: {{source: FILE, target: FILE}}"
    )


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a file for bytes, unpacked if it is a .gz. Any error while they are read is raised as a CorpusError."""
    try:
        with path.open("rb") as raw:
            _check_that_it_ends(path, raw.fileno())
            if path.suffix != ".gz":
                yield raw
                return
            with gzip.GzipFile(fileobj=raw) as file:
                yield file
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{path}: cannot be read ({reason}); name a text file, or a complete .gz of one") from None


def _check_that_it_ends(path: Path, number: int) -> None:
    """Raises CorpusError for a device such as /dev/zero; but a terminal ends with Ctrl-D, and /dev/null at once."""
    mode = os.fstat(number).st_mode
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not os.isatty(number) and not path.samefile(os.devnull)):
        raise CorpusError(f"{path}: is a device, which may never end; name a text file, or a .gz of one")


def count_lines(path: Path) -> int:
    """Count the lines of a file as `read_lines` splits it, by reading it to the end."""
    with opened(path) as file:
        return count_lines_left(file)


def count_lines_left(file: io.BufferedIOBase) -> int:
    """Count the lines from the current position to the end; the last one may lack its newline."""
    count, last = 0, b"\n"
    while chunk := file.read(_CHUNK):
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count + (last != b"\n")


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with opened(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _hub_pairs(corpus: CorpusConfig, split: str) -> SentencePairs:
    """Open a split of a hub data set. Raises CorpusError if it cannot be loaded, has no rows, or lacks a language."""
    name = f"{corpus.dataset} ({split})"
    rows = _hub_rows(corpus, split, name)
    if len(rows) == 0:
        raise CorpusError(f"{name} has no rows; choose another split")
    nested = "translation" in rows.column_names
    columns = list(rows[0]["translation"]) if nested else rows.column_names
    for language in (corpus.source_language, corpus.target_language):
        if language not in columns:
            raise CorpusError(
                f"{name} has no column '{language}', but: {', '.join(columns)}; correct "
                "corpus.source_language or corpus.target_language"
            )

    def begin() -> Iterator[tuple[str, str]]:
        for block in rows.iter(batch_size=1000):
            if nested:
                yield from (_row(pair, corpus) for pair in block["translation"])
            else:
                sides = block[corpus.source_language], block[corpus.target_language]
                yield from ((_one_line(source), _one_line(target)) for source, target in zip(*sides, strict=True))

    return SentencePairs(len(rows), begin)


def _hub_rows(corpus: CorpusConfig, split: str, name: str) -> Any:
    """Load the datasets.Dataset of a split, which errors call `name`."""
    # Here, because importing datasets takes most of a second, some machines do not have it, and local files need none.
    try:
        import datasets
    except ImportError as error:
        raise CorpusError(
            f"corpus.dataset={corpus.dataset} is on the Hugging Face hub, and the package that reads it cannot be "
            f"imported ({error}). Install it: {sys.executable} -m pip install datasets. Or use local files: "
            "corpus.dataset=null corpus.train=PREFIX corpus.valid=PREFIX 'corpus.test={NAME: PREFIX}'"
        ) from None

    try:
        return datasets.load_dataset(corpus.dataset, corpus.subset, split=split, revision=corpus.revision)
    except Exception as error:  # the hub, its cache and its builders raise errors of many types
        script = "scripts are no longer supported" in str(error)
        advice = "The hub's own copy of it may work: corpus.revision=refs/convert/parquet. " if script else ""
        raise CorpusError(
            f"{name} cannot be loaded: {str(error).rstrip('.')}. {advice}Check the network, and "
            "correct corpus.dataset, corpus.subset or the split; or use local files: corpus.dataset=null "
            "corpus.train=PREFIX corpus.valid=PREFIX 'corpus.test={NAME: PREFIX}'"
        ) from error


def _row(pair: dict[str, Any], corpus: CorpusConfig) -> tuple[str, str]:
    return _one_line(pair[corpus.source_language]), _one_line(pair[corpus.target_language])


def _one_line(text: str | None) -> str:
    """Make one line of a text from the hub: newlines become spaces, and a missing text becomes empty."""
    return re.sub(r"[\r\n]+", " ", text or "")
