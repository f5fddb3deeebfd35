"""Decompresses files whose names end in .gz, .zst or .xz, as they are read."""

import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import Any

from transformer_mt.corpora.packages import needed
from transformer_mt.errors import CorpusError

COMPRESSED = (".gz", ".zst", ".xz")
# The first bytes of each, by which one can tell a compressed file that has another name.
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ\x00": ".xz"}
# Those of files that are compressed otherwise.
_OTHER_MAGIC = {
    b"BZh91AY&": "bzip2",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"PK\x03\x04": "zip, as archives and spreadsheets are",
}

# What is raised where a file is cut off, damaged, or compressed in another way.
Damage = (OSError, EOFError, zlib.error, lzma.LZMAError)


def is_compressed(path: Path) -> bool:
    """Return whether the name of a file says that it is compressed."""
    return path.suffix in COMPRESSED


def decompressed(raw: io.BufferedReader, path: Path) -> io.BufferedIOBase:
    """Return the decompressed bytes of a file, as its name asks for. Whoever reads them may meet one of `Damage`.

    Raises CorpusError if the file is compressed but its name does not say so, if it is compressed in a way that is not
    read, or if the package that reads it is missing; EOFError if it should be compressed, but is empty.
    """
    if is_compressed(path) and not raw.peek(1):
        raise EOFError("it is empty, but even compressed text of no lines has some bytes")
    match path.suffix:
        case ".gz":
            return gzip.GzipFile(fileobj=raw)
        case ".xz":
            return io.BufferedReader(_Xz(raw))
        case ".zst":
            return io.BufferedReader(_Zstandard(raw, path))
    if raw.seekable():
        begin = raw.peek(8)
        for magic, suffix in _MAGIC.items():
            if begin.startswith(magic):
                raise CorpusError(f"{path}: is compressed, but its name does not end in {suffix}; rename it")
        for magic, kind in _OTHER_MAGIC.items():
            if begin.startswith(magic):
                raise CorpusError(
                    f"{path}: is no text, but compressed by {kind}; decompress it, or save a spreadsheet as CSV. Only "
                    "the key zip reads archives, and of text files .gz, .zst and .xz are decompressed"
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


class _Zstandard(io.RawIOBase):
    """The decompressed bytes of a .zst. Python has a module for them only from 3.14 on."""

    def __init__(self, raw: io.BufferedReader, path: Path) -> None:
        pyarrow = needed("pyarrow", f"{path} is compressed as .zst", f"decompress it: zstd -d {path.name}")
        self._file = pyarrow.CompressedInputStream(raw, "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)
