"""Opens files of text, packed or not, and reads their lines."""

import hashlib
import io
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, NamedTuple

from transformer_mt.corpora.lines import CONVERT
from transformer_mt.corpora.packed import Damage, unpacked
from transformer_mt.errors import CorpusError

_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 20  # bytes
_log = logging.getLogger(__name__)

# What to do with bytes that are not UTF-8: name the line and stop, or write U+FFFD in their place.
InvalidText = Literal["strict", "replace"]


def read_lines(path: Path, errors: InvalidText = "strict") -> Iterator[str]:
    """Read the lines of a UTF-8 file, unpacked if its name asks for it, as `decode_lines` does.

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
                raise CorpusError(f"{place}; {CONVERT}") from None
            if not warned:
                _log.warning("warning: %s; such bytes are replaced by U+FFFD, here and below", place)
            warned = True
            yield line.decode("utf-8", errors="replace")


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a file for bytes, unpacked if it is a .gz, .zst or .xz.

    Any error while they are read is raised as a CorpusError.
    """
    try:
        with path.open("rb") as raw:
            _check_that_it_ends(path, raw.fileno())
            with unpacked(raw, path) as file:
                yield file
    except Damage as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(
            f"{path}: cannot be read ({reason}); name a text file, or a complete .gz, .zst or .xz of one"
        ) from None


def _check_that_it_ends(path: Path, number: int) -> None:
    """Raises CorpusError for a device such as /dev/zero, and for a file of the kernel such as /proc/kmsg.

    But a terminal ends with Ctrl-D, and /dev/null at once.
    """
    mode, what = os.fstat(number).st_mode, ""
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not os.isatty(number) and not path.samefile(os.devnull)):
        what = "a device"
    elif stat.S_ISREG(mode) and path.resolve().as_posix().startswith(("/proc/", "/sys/")):
        what = "a file of the kernel"
    if what:
        raise CorpusError(f"{path}: is {what}, which may never end; name a text file, packed or not")


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


class Survey(NamedTuple):
    """What one reading of a whole file tells, before any of it is used."""

    digest: str
    """The SHA-256, hexadecimal, of the unpacked bytes."""
    num_lines: int


def survey(path: Path) -> Survey:
    """Read a file to its end. Raises CorpusError if it cannot be read, or if what is packed is not whole."""
    with opened(path) as file:
        return survey_of(file)


def survey_of(file: io.BufferedIOBase | IO[bytes]) -> Survey:
    """Read what is left of a file to its end. Lines are counted as `read_lines` splits them."""
    digest, count, last = hashlib.sha256(), 0, b"\n"
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return Survey(digest.hexdigest(), count + (last != b"\n"))
