"""Cuts text into lines, in blocks, quickly. A line that cannot be used becomes its fault; the others go on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from transformer_mt.corpora.corpus import BLOCK, LONGEST
from transformer_mt.corpora.text_files import BOM, CONVERT, ByteStream
from transformer_mt.errors import CorpusError

_READ_AT_A_TIME = 1 << 18  # bytes
_MANY_RETURNS = 10  # in text without any line end
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used."""

    fault: str
    """What is wrong and what to do, to follow the place."""
    text: str
    """Its text, with U+FFFD in place of bytes that are not UTF-8, cut if it is too long."""


def line_blocks(file: ByteStream, name: str) -> Iterator[list[str | BadLine]]:
    """Cut a file of UTF-8 into blocks of BLOCK lines, without their ends; the last block may have fewer.

    Only "\\n" ends a line. Carriage returns before it are removed, and so is a byte order mark at the start.
    Raises CorpusError, which calls the file `name`, if it is in UTF-16, or if carriage returns alone end its lines.
    """
    waiting: list[str | BadLine] = []
    for chunk in _chunks(file, name):
        waiting += _lines_of(chunk)
        whole = len(waiting) - len(waiting) % BLOCK
        for start in range(0, whole, BLOCK):
            yield waiting[start : start + BLOCK]
        del waiting[:whole]
    if waiting:
        yield waiting


def all_lines(file: ByteStream, name: str) -> Iterator[str | BadLine]:
    """Cut a file into lines as `line_blocks` does."""
    for block in line_blocks(file, name):
        yield from block


def has_faults(lines: Iterable[str | BadLine]) -> bool:
    """Return whether any of these lines is bad."""
    return BadLine in set(map(type, lines))


def _chunks(file: ByteStream, name: str) -> Iterator[bytes]:
    """Read bytes up to the end of a line. From the middle of a line longer than LONGEST, some are left out."""
    start = file.read(_READ_AT_A_TIME)
    if start.startswith(_UTF16):
        raise CorpusError(f"{name}: is UTF-16, not UTF-8; convert it, as in `iconv -f UTF-16 -t UTF-8`")
    chunk = start.removeprefix(BOM)
    if b"\n" not in chunk and chunk.count(b"\r") >= _MANY_RETURNS:
        raise CorpusError(
            f"{name}: its lines end in carriage returns alone (CR), as of an old Macintosh; convert it, as in "
            "`tr '\\r' '\\n'`"
        )
    # A byte order mark by itself is an empty line, as where lines are counted.
    begun, length = [b""] if start else [], 0
    while chunk:
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*begun, chunk[:end]])
            begun, length = [], 0
        if end < len(chunk) and length <= LONGEST:
            begun.append(chunk[end:])
            length += len(chunk) - end
        chunk = file.read(_READ_AT_A_TIME)
    if begun:
        yield b"".join(begun)


def _lines_of(chunk: bytes) -> list[str | BadLine]:
    try:
        text = chunk.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"  # each line is looked at then, as it is where there are NULs
    if "\0" in text or len(chunk) > LONGEST:
        return [_checked(line) for line in chunk.removesuffix(b"\n").split(b"\n")]
    lines: list[str | BadLine] = list(text.removesuffix("\n").split("\n"))
    return [line.rstrip("\r") for line in lines if isinstance(line, str)] if "\r" in text else lines


def _checked(raw: bytes) -> str | BadLine:
    line = raw.rstrip(b"\r")
    if len(line) > LONGEST:
        fault = f"has more than {LONGEST:,} bytes; put each sentence on a line of its own"
        return BadLine(fault, line[:100].decode("utf-8", errors="replace"))
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8 (byte 0x{line[error.start]:02x}); {CONVERT}"
        return BadLine(fault, line.decode("utf-8", errors="replace"))
    if "\0" in text:
        return BadLine("holds the character NUL (U+0000), which no text needs; remove it, as in `tr -d '\\000'`", text)
    return text
