"""The parts of an output, in a directory beside it, until the output is complete.

Each part is a file that appears when it is complete: the checksum of all that follows, a line of JSON with notes, and
then the content. The file parts.json describes the output to which the parts belong.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from transformer_mt.base.errors import DirectoryError
from transformer_mt.base.remote import Place, RemotePath
from transformer_mt.storage.files import OWN_SUFFIX, parse_json, read_json, replacing, target_of, write_json
from transformer_mt.storage.own_directory import LOCK, Owner, hold

RECORD = "parts.json"
DONE = "complete"  # the field of parts.json that says from which lines the complete output was made
ONCE = "once"  # the field that says that parts.json stays after that
OWNER = Owner("translate", "writes the parts of the output there", "name another --output")


class OutputParts:
    """The directory of the parts of an output until the output is complete. Parts are numbered from 0."""

    def __init__(self, output: Place) -> None:
        """Raises OSError if the links at `output` form a circle."""
        if isinstance(output, RemotePath):
            output = Path(output.name)  # parts stay here, in the working directory
        target = target_of(output) if output.is_symlink() else output  # messages show the path that was typed
        self.directory = target.with_name(f"{target.name}.parts")
        self._writer = uuid4().hex

    def locked(self, patience: float = math.inf) -> AbstractContextManager[None]:
        """Make or reuse the directory for steps of one process at a time; others wait. Raises DirectoryError."""
        return hold(self.directory, OWNER, patience=patience)

    def tidy(self, has_others: bool) -> None:
        """Delete the parts of a complete output; and the directory, if it has no parts and no other process needs it.

        If the record says so, it stays. The lock must be held.
        """
        record = dict[str, Any]()
        with suppress(DirectoryError):
            record = self.record()
        if DONE in record:
            self.delete_all()
        if has_others or self.numbers():
            return
        with suppress(OSError):  # the directory may contain files that are not from this program
            for path in self.directory.glob(f".*{OWN_SUFFIX}"):  # the remains of killed processes
                path.unlink()
            if not record.get(ONCE):
                (self.directory / RECORD).unlink(missing_ok=True)
                (self.directory / LOCK).unlink()
                self.directory.rmdir()

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Write the description of the output. Raises UserError."""
        write_json(self.directory / RECORD, record)

    def record(self) -> dict[str, Any]:
        """Return the description of the output. Raises DirectoryError if it is missing or damaged."""
        try:
            return {**read_json(self.directory / RECORD)}
        except (OSError, ValueError, TypeError) as error:
            raise DirectoryError(f"{self.directory / RECORD}: cannot be read ({error}); {self.begin_anew()}") from None

    def begin_anew(self) -> str:
        """Return advice for a user who does not want to resume from these parts."""
        return f"to begin again, delete the directory {self.directory}; or name another --output"

    def path(self, number: int) -> Path:
        return self.directory / f"{number:06d}"

    def numbers(self) -> list[int]:
        """Return the numbers of the existing parts, in rising order."""
        return sorted(int(path.name) for path in self.directory.glob("[0-9]*") if path.name.isdecimal())

    def write(self, number: int, notes: Mapping[str, Any], content: bytes) -> None:
        """Write a part in one step that survives a power failure. Raises UserError if writing fails."""
        checked = json.dumps(notes).encode() + b"\n" + content
        with replacing(self.path(number), durable=True, writer=self._writer) as file:
            file.write(checksum(checked).encode() + b"\n" + checked)

    def read(self, number: int, output: BinaryIO | None = None) -> dict[str, Any]:
        """Return the notes of a part, and append its content to the output. Raises DirectoryError if it is damaged."""
        try:
            expected, _, checked = self.path(number).read_bytes().partition(b"\n")
            if checksum(checked).encode() != expected:
                raise ValueError("its checksum has changed")
            written, _, content = checked.partition(b"\n")
            notes: dict[str, Any] = {**parse_json(written.decode())}
        except (FileNotFoundError, ValueError, TypeError) as error:
            raise DirectoryError(
                f"{self.path(number)}: is damaged ({error}): delete it, and the same command makes this part again"
            ) from None
        if output is not None:
            output.write(content)
        return notes

    def delete_all(self) -> None:
        for number in self.numbers():
            self.path(number).unlink(missing_ok=True)


def checksum(content: bytes) -> str:
    """Return the SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
