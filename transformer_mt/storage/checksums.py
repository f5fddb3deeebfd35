"""SHA256SUMS: the checksums of the files in a directory, in the format of `sha256sum --check SHA256SUMS`.

They show damage: files that were cut short, changed or exchanged. They are no protection from somebody who changes a
file and its checksum.
"""

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from transformer_mt.storage.files import open_regular, read_regular, write_whole

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


class Fault(NamedTuple):
    """A file in a directory, and what is wrong with it."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name} {self.what}"


def sha256(path: Path) -> str:
    """Return the checksum of a file, 64 hexadecimal digits. Raises OSError as `open_regular` does."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sums_of(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the checksum of each of these files, by its name. Raises OSError if one cannot be read."""
    return {name: sha256(directory / name) for name in names}


def write_sums(directory: Path, sums: Mapping[str, str]) -> None:
    """Write SHA256SUMS as a whole. Raises UserError if it cannot be written."""
    write_whole(directory / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())))


def read_sums(directory: Path) -> dict[str, str]:
    """Return the checksums in SHA256SUMS, by the name of the file.

    Raises OSError if it cannot be read; and ValueError, which names the line, if a line is not a checksum and the name
    of a file below the directory, or if a file is named twice.
    """
    content = read_regular(directory / SUMS).decode("utf-8", errors="replace")
    sums: dict[str, str] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        found = _LINE.fullmatch(line)
        if found is None or not _is_below(found[2]) or found[2] in sums:
            raise ValueError(
                f"is damaged: line {number} is not the checksum and the name of a file below the directory, or names "
                "a file for the second time"
            )
        sums[found[2]] = found[1]
    return sums


def fault(directory: Path, names: Collection[str]) -> Fault | None:
    """Return the first of these files that is not as SHA256SUMS says; None if all are.

    A file that exists but is not named there is a fault, and so is a file that is named there but is missing.
    """
    try:
        sums = read_sums(directory)
    except OSError as error:
        return Fault(SUMS, f"cannot be read ({error.strerror})")
    except ValueError as error:
        return Fault(SUMS, str(error))
    for name in names:
        path = directory / name
        if name not in sums and os.path.lexists(path):
            return Fault(name, f"is not named in {SUMS}")
        if name in sums and (what := _difference(path, sums[name])):
            return Fault(name, what)
    return None


def _difference(path: Path, digest: str) -> str:
    try:
        return "" if sha256(path) == digest else f"is not as it was written: its checksum is not the one in {SUMS}"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _is_below(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name
