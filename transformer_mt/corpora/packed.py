"""Unpacks files whose names end in .gz, .zst or .xz, as they are read."""

import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import Any

from transformer_mt.corpora.packages import needed
from transformer_mt.errors import CorpusError

PACKED = (".gz", ".zst", ".xz")
# The first bytes of each, by which one can tell a packed file that has another name.
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ\x00": ".xz"}
# Those of files that are packed otherwise.
_OTHER_MAGIC = {
    b"BZh91AY&": "bzip2",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"PK\x03\x04": "zip, as archives and spreadsheets are",
}

# What unpacking raises where a file is cut off, damaged, or packed in another way.
Damage = (OSError, EOFError, zlib.error, lzma.LZMAError)


def is_packed(path: Path) -> bool:
    """Return whether the name of a file says that it is packed."""
    return path.suffix in PACKED


def unpacked(raw: io.BufferedReader, path: Path) -> io.BufferedIOBase:
    """Return the unpacked bytes of a file, as its name asks for. Whoever reads them may meet one of `Damage`.

    Raises CorpusError if the file is packed but its name does not say so, if it is packed in a way that is not read, or
    if the package that unpacks it is missing; EOFError if it should be packed, but is empty.
    """
    if is_packed(path) and not raw.peek(1):
        raise EOFError("it is empty, but even packed text of no lines has some bytes")
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
                raise CorpusError(f"{path}: is packed, but its name does not end in {suffix}; rename it")
        for magic, kind in _OTHER_MAGIC.items():
            if begin.startswith(magic):
                raise CorpusError(
                    f"{path}: is no text, but packed by {kind}; unpack it, or save a spreadsheet as CSV. Only the key "
                    "zip reads archives, and of text files .gz, .zst and .xz are unpacked"
                )
    return raw


class _Xz(io.RawIOBase):
    """The unpacked bytes of an .xz. Python's LZMAFile takes a second stream that is damaged for the end of the file."""

    def __init__(self, raw: io.BufferedReader) -> None:
        self._file = raw
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = b""
        while not content:
            if self._stream.eof:
                if not (more := self._after_padding()):
                    return 0
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            elif self._stream.needs_input:
                if not (more := self._file.read1()):
                    raise EOFError("it ends inside a stream, or something else follows its last one")
            else:
                more = b""
            content = self._stream.decompress(more, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _after_padding(self) -> bytes:
        """Return packed bytes of the next stream, or none at the end.

        Between streams and at the end there may be zero bytes, whose number is a multiple of four
        (https://tukaani.org/xz/xz-file-format.txt, section 2.2).
        """
        more, num_zeros = self._stream.unused_data or self._file.read1(), 0
        while more.startswith(b"\0"):
            rest = more.lstrip(b"\0")
            num_zeros += len(more) - len(rest)
            more = rest or self._file.read1()
        if num_zeros % 4:
            raise lzma.LZMAError(f"there are {num_zeros:,} zero bytes after a stream, but not a multiple of four")
        return more


class _Zstandard(io.RawIOBase):
    """The unpacked bytes of a .zst. Python has a module for them only from 3.14 on."""

    def __init__(self, raw: io.BufferedReader, path: Path) -> None:
        pyarrow = needed("pyarrow", f"{path} is packed as .zst", f"unpack it: zstd -d {path.name}")
        self._file = pyarrow.CompressedInputStream(raw, "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)
