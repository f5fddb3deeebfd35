"""Keeps the finished parts of an output beside it, so that work that was killed can go on.

A part is a file: its content, and then a line of JSON that says what it was made from and shows whether it is whole.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from transformer_mt.errors import DirectoryError
from transformer_mt.storage.files import OWN_SUFFIX, replacing, target_of, write_whole
from transformer_mt.storage.json_text import parse_json, read_json
from transformer_mt.storage.own_directory import LOCK, Owner, check_own, hold

RECORD = "parts.json"
OWNER = Owner("translate", "writes the parts of the output there", "name another --output")
_LONGEST_END = 2**20  # bytes of the last line of a part; it has some hundred
_CHUNK = 2**20  # bytes


@dataclass(frozen=True)
class PartEnd:
    """What the last line of a part says."""

    made_from: str
    """The digest of the input that the part was made from."""
    notes: dict[str, Any]
    """What else the writer wants to know of it later."""
    num_bytes: int
    sha256: str
    """Of the content, whose length num_bytes is."""


class OutputParts:
    """The directory that holds the parts of an output until all are there; they are numbered from 0."""

    def __init__(self, output: Path) -> None:
        """Raises OSError if the links at `output` lead in a circle."""
        target = target_of(output) if output.is_symlink() else output  # else as it was typed, for messages
        self.directory = target.with_name(f"{target.name}.parts")

    def read_record(self) -> dict[str, Any] | None:
        """Return what `begin` recorded; None if nothing has begun, or a kill came before the record was written.

        Raises DirectoryError if the directory is somebody else's, or if its record is damaged.
        """
        check_own(self.directory, OWNER)
        try:
            record = read_json(self.directory / RECORD)
            if not isinstance(record, dict):
                raise ValueError("it is no JSON object")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise DirectoryError(f"{self.directory / RECORD}: cannot be read ({error}); {self.begin_anew()}") from None
        return record

    def begin_anew(self) -> str:
        """Return what a user can do who does not want to go on with these parts."""
        return f"to begin anew, delete the directory {self.directory}; or name another --output"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the directory, or take it over, and keep other commands out. Raises DirectoryError as `hold` does."""
        with hold(self.directory, OWNER):
            yield

    def begin(self, record: dict[str, Any]) -> None:
        """Write down what the parts belong to, before the first of them is written. Raises UserError.

        Parts that are there belong to nothing known: a kill may have come while they were deleted. They are deleted.
        """
        self._delete_parts()
        write_whole(self.directory / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")

    def path(self, number: int) -> Path:
        """Return the file of a part."""
        return self.directory / f"{number:06d}"

    @contextmanager
    def writing(self, number: int, made_from: str, notes: Callable[[], dict[str, Any]]) -> Iterator["PartFile"]:
        """Give a file for the content of a part, which is there as a whole at the end, even if the power fails then.

        `notes` is called when all is written. Raises UserError if it cannot be written.
        """
        with replacing(self.path(number), durable=True) as file:
            part = PartFile(file)
            yield part
            end = {"made_from": made_from, "bytes": part.num_bytes, "sha256": part.digest.hexdigest(), "notes": notes()}
            file.write(b"\n" + json.dumps(end, ensure_ascii=False).encode() + b"\n")

    def end_of(self, number: int) -> PartEnd | None:
        """Return what is known of a finished part; None if it is missing, or not as it was written."""
        try:
            with self.path(number).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LONGEST_END))
                tail = file.read()
            if not tail.endswith(b"\n"):
                return None
            start = tail.rindex(b"\n", 0, len(tail) - 1)
            found = parse_json(tail[start:].decode())
            end = PartEnd(found["made_from"], found["notes"], found["bytes"], found["sha256"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return end if end.num_bytes == size - (len(tail) - start) and isinstance(end.notes, dict) else None

    def count(self) -> int:
        """Count the parts that are there, quickly; whether they are whole is not looked at."""
        return sum(re.fullmatch(r"\d{6,}", name) is not None for name in os.listdir(self.directory))

    def copy(self, number: int, output: BinaryIO) -> PartEnd:
        """Append the content of a finished part to the output, and return what is known of the part.

        Raises DirectoryError if it is not as it was written; it is deleted then.
        """
        end, digest = self.end_of(number), hashlib.sha256()
        if end is not None:
            with self.path(number).open("rb") as file:
                left = end.num_bytes
                while left and (chunk := file.read(min(_CHUNK, left))):
                    digest.update(chunk)
                    output.write(chunk)
                    left -= len(chunk)
        if end is None or digest.hexdigest() != end.sha256:
            self.path(number).unlink(missing_ok=True)
            raise DirectoryError(
                f"{self.path(number)}: is not as it was written, and was deleted. The same command makes this part "
                "again, and keeps the others"
            )
        return end

    def delete(self) -> None:
        """Delete the parts and their directory. What somebody else put there stays, and so does the directory then."""
        with suppress(OSError, DirectoryError), self.held():
            self._delete_parts()
            (self.directory / RECORD).unlink(missing_ok=True)
            (self.directory / LOCK).unlink()
            self.directory.rmdir()

    def _delete_parts(self) -> None:
        for name in os.listdir(self.directory):
            if re.fullmatch(rf"\d{{6,}}|\..*{re.escape(OWN_SUFFIX)}", name):
                (self.directory / name).unlink()


class PartFile:
    """The content of a part while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest, self.num_bytes = file, hashlib.sha256(), 0

    def write(self, content: bytes) -> int:
        """Append to the content. Raises OSError if there is no room."""
        self._file.write(content)
        self.digest.update(content)
        self.num_bytes += len(content)
        return len(content)
