"""Reads parallel text in a zip archive, as OPUS gives it. Nothing is decompressed to disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile, ZipInfo

from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.local_files import local_files
from transformer_mt.corpora.packed import Damage, is_compressed
from transformer_mt.corpora.parallel import OneSide, open_sides
from transformer_mt.errors import CorpusError
from transformer_mt.settings.corpus import PairedText


def open_zip(text: PairedText) -> Corpus:
    """Open archives. Raises CorpusError as `open_sides` does, or if one has no file of a language, or several."""
    paths = local_files(text.place)
    return open_sides(
        text, paths, [(_member_side(path, str(text.source)), _member_side(path, str(text.target))) for path in paths]
    )


def _member_side(path: Path, name: str) -> OneSide:
    if is_compressed(path):
        raise CorpusError(f"{path}: an archive is compressed already, and is read only as a .zip; decompress it once")
    with _archive(path) as archive:
        member = _member(name, archive, path)
    return OneSide(f"{path}/{member.filename}", partial(_opened, path, member.filename))


@contextmanager
def _opened(path: Path, member: str) -> Iterator[IO[bytes]]:
    with _archive(path) as archive, archive.open(member) as file:
        yield file


@contextmanager
def _archive(path: Path) -> Iterator[ZipFile]:
    """Open an archive. Any error while it is read is raised as a CorpusError."""
    try:
        with ZipFile(path) as archive:
            yield archive
    except (*Damage, BadZipFile, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{path}: cannot be read ({reason}); name a complete .zip") from None


def _member(name: str, archive: ZipFile, path: Path) -> ZipInfo:
    """Return the member with this name, or the only one whose name ends in it. Raises CorpusError if there is none."""
    # macOS puts a file of its own beside each.
    files = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    found = [info for info in files if info.filename == name]
    found = found or [info for info in files if info.filename.endswith(f".{name}")]
    if len(found) != 1:
        problem = f"has {len(found)} files whose names end in .{name}" if found else f"has no file that ends in .{name}"
        there = ", ".join(info.filename for info in (found or files)[:20])
        raise CorpusError(
            f"{path}: {problem}: {there or 'it is empty'}. Give the whole names: source: NAME and target: NAME"
        )
    if found[0].flag_bits & 1:
        raise CorpusError(f"{path}: {found[0].filename} is encrypted; decompress the archive with its password")
    return found[0]
