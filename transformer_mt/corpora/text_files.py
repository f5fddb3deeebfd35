"""Opens files of text, compressed or not, and reads their lines."""

import hashlib
import io
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, NamedTuple

from transformer_mt.corpora.packed import Damage, decompressed
from transformer_mt.errors import CorpusError

BOM = b"\xef\xbb\xbf"
# Not ISO-8859-1: what comes from Windows has quotes and dashes where that has control characters.
CONVERT = "convert it from its encoding, as in `iconv -f WINDOWS-1252 -t UTF-8`"
_CHUNK = 1 << 20  # bytes
_log = logging.getLogger(__name__)

ByteStream = io.BufferedIOBase | IO[bytes]

# What to do with bytes that are not UTF-8: name the line and stop, or write U+FFFD in their place.
InvalidText = Literal["strict", "replace"]


def read_lines(path: Path, errors: InvalidText = "strict") -> Iterator[str]:
    """Read the lines of a UTF-8 file, decompressed if its name asks for it, as `decode_lines` does.

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
        line = (raw.removeprefix(BOM) if number == 1 else raw).removesuffix(b"\n").rstrip(b"\r")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            place = f"{name}:{number}: is not UTF-8 (byte 0x{line[error.start]:02x})"
            if errors == "strict":
                raise CorpusError(f"{place}; {CONVERT}") from None
            if not warned:
                _log.warning("warning: %s; such bytes are replaced by U+FFFD, here and below", place)
            warned = True
            yield line.decode("utf-8", errors="replace")


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a file for bytes, decompressed if it is a .gz, .zst or .xz.

    Any error while they are read is raised as a CorpusError.
    """
    try:
        with path.open("rb") as raw, decompressed(raw, path) as file:
            yield file
    except Damage as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(
            f"{path}: cannot be read ({reason}); name a text file, or a complete .gz, .zst or .xz of one"
        ) from None


@contextmanager
def opened_again(path: Path, digest: str) -> Iterator[io.BufferedIOBase]:
    """Open a file as `opened` does, but raise CorpusError at its end if its text is no longer that of its survey."""
    with opened(path) as file, same_text(file, digest, str(path)) as hashed:
        yield hashed


@contextmanager
def same_text(file: ByteStream, digest: str, name: str) -> Iterator[io.BufferedIOBase]:
    """Hash what is read of a file, which messages call `name`.

    At the end, raises CorpusError if its bytes do not have the digest of its survey. So what is encoded is the text
    whose digest is written down, although it is read several times.
    """
    hashed = _Hashed(file)
    yield hashed
    while hashed.read(_CHUNK):  # what the reader has left
        pass
    check_same(hashed.sum.hexdigest(), digest, name)


def check_same(found: str, digest: str, name: str) -> None:
    """Raises CorpusError if a file that is read again has another digest than at first."""
    if found != digest:
        raise CorpusError(
            f"{name}: has changed while it was read; let no other program write it, and give the same command again"
        )


class _Hashed(io.BufferedIOBase):
    """The bytes of another file, which are hashed as they are read."""

    def __init__(self, file: ByteStream) -> None:
        self._file, self.sum = file, hashlib.sha256()

    def read(self, size: int | None = -1, /) -> bytes:
        content = self._file.read(-1 if size is None else size)
        self.sum.update(content)
        return content


class Survey(NamedTuple):
    """What one reading of a whole file tells, before any of it is used."""

    digest: str
    """The SHA-256, hexadecimal, of the decompressed bytes."""
    num_lines: int


def survey(path: Path) -> Survey:
    """Read a file to its end. Raises CorpusError if it cannot be read, or if what is compressed is not whole."""
    with opened(path) as file:
        return survey_of(file)


def survey_of(file: ByteStream) -> Survey:
    """Read what is left of a file to its end. Lines are counted as `read_lines` splits them."""
    digest, count, last = hashlib.sha256(), 0, b"\n"
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return Survey(digest.hexdigest(), count + (last != b"\n"))
