"""Opens text files, compressed or not, and reads their lines."""

import codecs
import gzip
import hashlib
import importlib
import io
import logging
import lzma
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from stat import S_ISREG
from types import ModuleType
from typing import IO, Any, Literal, NamedTuple, TypeVar

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.remote import Place, RemotePath, check_same

LONGEST = 1_000_000  # bytes of a line: more than any sentence; a file without line ends must not fill the memory
COMPRESSED = (".gz", ".zst", ".xz")
# The first bytes of compressed files, which reveal one with a wrong name, or in another form.
_MAGIC = {
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"\xfd7zXZ\x00": ".xz",
    b"BZh91AY&": "bzip2",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"PK\x03\x04": "zip, as archives and spreadsheets are",
}

# The errors of reading a file that is cut off, damaged, or compressed in another way.
Damage = (OSError, EOFError, zlib.error, lzma.LZMAError)


def needed(module: str, what: str, otherwise: str) -> ModuleType:
    """Import a module at its first use, because some take most of a second, and some machines do not have them.

    Raises CorpusError if that fails. `what` is the beginning of its message, and says why the module is needed;
    `otherwise` is the end, and says what the user can do without the module.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise CorpusError(
            f"{what}, but the package that reads it cannot be imported ({error}). Install it: {sys.executable} -m pip "
            f"install {package}. Or {otherwise}"
        ) from None


def is_compressed(path: Place) -> bool:
    return path.suffix in COMPRESSED


def decompressed(raw: io.BufferedReader, path: Place) -> io.BufferedIOBase:
    """Return the bytes of a file, decompressed if its name has the ending. Reading them may raise one of `Damage`.

    Raises CorpusError if the file is compressed but its name has no such ending, if the compression is not supported,
    or if the package that decompresses it is missing. Raises EOFError if it has such an ending, but is empty.
    """
    if is_compressed(path) and not raw.peek(1):
        raise EOFError("it is empty, but a compressed file has some bytes even without lines")
    match path.suffix:
        case ".gz":
            return gzip.GzipFile(fileobj=raw)
        case ".xz":
            return io.BufferedReader(_Xz(raw))
        case ".zst":
            # Python has a module for .zst only since version 3.14.
            pyarrow = needed("pyarrow", f"{path} is compressed as .zst", f"decompress it: zstd -d {path.name}")
            return io.BufferedReader(pyarrow.CompressedInputStream(raw, "zstd"))
    if raw.seekable():
        kind = next((kind for magic, kind in _MAGIC.items() if raw.peek(8).startswith(magic)), None)
        if kind in COMPRESSED:
            raise CorpusError(f"{path}: is compressed, but its name does not end in {kind}; rename it")
        if kind is not None:
            raise CorpusError(
                f"{path}: is no text, but compressed by {kind}; decompress it, or save a spreadsheet as CSV. "
                "An archive must be a .zip of two files, and a compressed text file must be a .gz, .zst or .xz"
            )
    return raw


class _Xz(io.RawIOBase):
    """The decompressed bytes of an .xz. Python's LZMAFile takes a damaged second stream for the end of the file."""

    def __init__(self, raw: io.BufferedReader) -> None:
        self._file = raw
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = b""
        while not content:
            more = b""
            if self._stream.eof:
                more = self._stream.unused_data.lstrip(b"\0")
                while not more:  # there may be zero bytes between streams and at the end
                    if not (chunk := self._file.read1()):
                        return 0
                    more = chunk.lstrip(b"\0")
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            elif self._stream.needs_input and not (more := self._file.read1()):
                raise EOFError("it ends inside a stream, or something else follows its last one")
            content = self._stream.decompress(more, len(buffer))
        buffer[: len(content)] = content
        return len(content)


BOM = b"\xef\xbb\xbf"
# Not ISO-8859-1, which has control characters where text from Windows has quotes and dashes.
CONVERT = "convert it from its encoding, as in `iconv -f WINDOWS-1252 -t UTF-8`"
_CHUNK = 1 << 20  # bytes
_MOST_BYTES = 1 << 26  # the longest line that `limited_lines` reads
_log = logging.getLogger(__name__)

Block = TypeVar("Block")
ByteStream = io.BufferedIOBase | IO[bytes]

# What to do with bytes that are not UTF-8: raise an error that names the line, or replace them by U+FFFD.
InvalidText = Literal["strict", "replace"]


def read_lines(path: Place, errors: InvalidText = "strict") -> Iterator[str]:
    """Read the lines of a UTF-8 file, compressed or not; see `decode_lines`. Raises CorpusError if it is unreadable."""
    with opened(path) as file:
        yield from decode_lines(limited_lines(file, str(path)), str(path), errors)


def limited_lines(file: ByteStream, name: str) -> Iterator[bytes]:
    """Read the lines of a file. Raises CorpusError if one is too long for the memory: /dev/zero is an endless line."""
    lines = _in_utf8(iter(partial(file.readline, _MOST_BYTES + 1), b""), name)
    for number, line in enumerate(lines, start=1):
        if len(line) > _MOST_BYTES:
            raise CorpusError(f"{name}:{number}: has more than {_MOST_BYTES:,} bytes; write one sentence on each line")
        yield line


def _in_utf8(pieces: Iterator[bytes], name: str = "") -> Iterator[bytes]:
    """Yield the pieces of a file as they are or, if it is UTF-16 with a byte order mark, its lines in UTF-8.

    With a name, raises CorpusError for UTF-16 that is damaged, or has no such mark: then zero bytes are in every second
    place, and hardly in the others.
    """
    start = next(pieces, b"")
    pieces = chain([start] if start else [], pieces)
    big, little = start[::2].count(0), start[1::2].count(0)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        begun = b""
        try:
            for text in codecs.iterdecode(pieces, "utf-16", "strict" if name else "replace"):
                *lines, begun = (begun + text.encode()).split(b"\n")
                yield from (line + b"\n" for line in lines)
        except UnicodeDecodeError as error:
            raise CorpusError(f"{name}: is UTF-16, but damaged ({error.reason}); copy the file again") from None
        yield from [begun] * bool(begun)
    elif name and max(big, little) > max(1, len(start) // 12, 10 * min(big, little)):
        kind = "UTF-16LE" if little > big else "UTF-16BE"
        raise CorpusError(f"{name}: is UTF-16, not UTF-8; convert it, as in `iconv -f {kind} -t UTF-8`")
    else:
        yield from pieces


def decode_lines(file: Iterable[bytes], name: str, errors: InvalidText = "strict") -> Iterator[str]:
    """Decode lines of UTF-8, and remove their line ends.

    Only "\\n" ends a line; U+2028 and other line separators do not. Carriage returns before "\\n" are removed, and so
    is a byte order mark at the start of the file. With errors="strict", bytes that are not UTF-8 raise CorpusError,
    which names the line; with "replace", they become U+FFFD, and a warning names the first such line.
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
                _log.warning("warning: %s; U+FFFD replaces such bytes in this line and in all that follow", place)
            warned = True
            yield line.decode("utf-8", errors="replace")


def version_of(place: Place | int) -> tuple[int, int] | None:
    """Return what changes when a file does; None if there is none, or if it is no regular file on this machine.

    `place` may be an open descriptor. A RemotePath notices changes itself.
    """
    with suppress(OSError, ValueError):
        if not isinstance(place, RemotePath) and S_ISREG((status := os.stat(place)).st_mode):
            return status.st_size, status.st_mtime_ns
    return None


def while_unchanged(blocks: Iterable[Block], place: Place | int, name: str) -> Iterator[Block]:
    """Yield blocks of a file. Raises CorpusError if it has changed, or is gone, since the call of this function."""
    before = version_of(place)

    def checked() -> Iterator[Block]:
        try:
            for block in blocks:
                check_same(version_of(place), before, name)
                yield block
        except CorpusError:
            check_same(version_of(place), before, name)  # a change may be the cause
            raise
        check_same(version_of(place), before, name)

    return checked()


@contextmanager
def opened(path: Place) -> Iterator[io.BufferedIOBase]:
    """Open a file for bytes, decompressed if it is a .gz, .zst or .xz.

    Raises CorpusError if reading it fails, or at the end if the file has changed meanwhile.
    """
    before = version_of(path)
    try:
        with path.open("rb") as raw, decompressed(raw, path) as file:
            yield file
        check_same(version_of(path), before, str(path))
    except Damage as error:
        check_same(version_of(path), before, str(path))  # a change may be the cause
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(
            f"{path}: cannot be read ({reason}); name a text file, or a complete .gz, .zst or .xz of one"
        ) from None


@contextmanager
def same_text(file: ByteStream, digest: str, name: str) -> Iterator[io.BufferedIOBase]:
    """Compute the hash of a file during reading. `name` is its name in messages.

    At the end, raises CorpusError if the hash is not `digest`, which an earlier survey found. So although a text is
    read several times, the encoded text is certainly the one with the stored digest.
    """
    hashed = _Hashed(file)
    yield hashed
    while hashed.read(_CHUNK):  # the rest of the file
        pass
    check_same(hashed.sum.hexdigest(), digest, name)


class _Hashed(io.BufferedIOBase):
    """The bytes of another file. `sum` is the hash of those that were read."""

    def __init__(self, file: ByteStream) -> None:
        self._file, self.sum = file, hashlib.sha256()

    def read(self, size: int | None = -1, /) -> bytes:
        content = self._file.read(-1 if size is None else size)
        self.sum.update(content)
        return content


class Survey(NamedTuple):
    """The result of reading a complete file once, before its text is used."""

    digest: str
    """The SHA-256, hexadecimal, of the decompressed bytes."""
    num_lines: int


def survey(path: Place) -> Survey:
    """Read a file to its end. Raises CorpusError if it cannot be read, or if a compressed file is incomplete."""
    with opened(path) as file:
        return survey_of(file)


def survey_of(file: ByteStream) -> Survey:
    """Read the rest of an open file to its end. Counts the same lines as `read_lines`."""
    hashed, count, last = _Hashed(file), 0, b"\n"
    for chunk in _in_utf8(iter(partial(hashed.read, _CHUNK), b"")):
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return Survey(hashed.sum.hexdigest(), count + (last != b"\n"))


_READ_AT_A_TIME = 1 << 18  # bytes
_MANY_RETURNS = 10  # carriage returns in text without any line end


@dataclass(frozen=True)
class BadLine:
    fault: str
    """What is wrong and what to do, as words to put after the place of the line."""
    text: str
    """The line with U+FFFD in place of bytes that are not UTF-8; only its beginning if it is too long."""


def all_lines(file: ByteStream, name: str) -> Iterator[str | BadLine]:
    """Cut a file into lines where `decode_lines` does, without line ends. `name` is its name in messages.

    Raises CorpusError for UTF-16 that is damaged or has no mark, or if all lines end in carriage returns only.
    """
    return chain.from_iterable(map(_lines_of, _chunks(file, name)))


def _chunks(file: ByteStream, name: str) -> Iterator[bytes]:
    """Read chunks that end where a line ends. Of a line longer than LONGEST, a part in the middle is left out."""
    chunks = _in_utf8(iter(partial(file.read, _READ_AT_A_TIME), b""), name)
    start = next(chunks, b"")
    chunk = start.removeprefix(BOM)
    if b"\n" not in chunk and chunk.count(b"\r") >= _MANY_RETURNS:
        raise CorpusError(
            f"{name}: its lines end in carriage returns alone (CR), as on an old Macintosh; convert it, as in "
            "`tr '\\r' '\\n'`"
        )
    # A file with only a byte order mark has an empty line, as in `survey_of`.
    begun, length = [b""] if start else [], 0
    while chunk:
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*begun, chunk[:end]])
            begun, length = [], 0
        if end < len(chunk) and length <= LONGEST:
            begun.append(chunk[end:])
            length += len(chunk) - end
        chunk = next(chunks, b"")
    if begun:
        yield b"".join(begun)


def _lines_of(chunk: bytes) -> list[str | BadLine]:
    try:
        text = chunk.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"  # so that each line is checked, as in a chunk with NULs
    if "\0" in text or len(chunk) > LONGEST:
        return [_checked(line) for line in chunk.removesuffix(b"\n").split(b"\n")]
    lines: list[str | BadLine] = list(text.removesuffix("\n").split("\n"))
    return [line.rstrip("\r") for line in lines if isinstance(line, str)] if "\r" in text else lines


def _checked(raw: bytes) -> str | BadLine:
    line = raw.rstrip(b"\r")
    if len(line) > LONGEST:
        fault = f"has more than {LONGEST:,} bytes; put each sentence on its own line"
        return BadLine(fault, line[:100].decode("utf-8", errors="replace"))
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8 (byte 0x{line[error.start]:02x}); {CONVERT}"
        return BadLine(fault, line.decode("utf-8", errors="replace"))
    if "\0" in text:
        return BadLine("contains the character NUL (U+0000); remove it, as in `tr -d '\\000'`", text)
    return text
