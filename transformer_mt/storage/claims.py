"""Claims: which worker makes which part of a common work. Workers may come, hang or die at any time.

Every worker can make every part, and a part appears in one step. So a claim only saves time: two workers that make the
same part do no harm.

A worker has a file with a random name, its sign, in which it raises a number every few seconds. A claim is a file that
names the sign of its worker. Others take the claim over if the sign is gone, or if it has not changed for the time of a
lease by their own clock. So nothing depends on the clocks of other machines or on the locks of a network file system.
Where locks work, processes on the same machine see at once that a worker is dead.
"""

import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Self

from transformer_mt.base.system import lock
from transformer_mt.storage.files import own_name, writing_to

LEASE = 60.0  # seconds without a sign of life after which others take over what a worker has claimed
POLL = 0.5  # seconds between two looks at what others do
_SIGN = own_name("worker-*")


class Claims:
    """What this worker has claimed, and what it knows of the others. It is a context; at its end nothing is claimed."""

    def __init__(self, directory: Path, work: str = "") -> None:
        """The signs of all workers are in the `directory`. `work` says what a worker makes (see `rivals`)."""
        self.directory, self.work = directory, work
        self._machine = ""
        self._sign = directory / _SIGN.replace("*", uuid.uuid4().hex)
        self._held = set[Path]()
        self._seen = dict[Path, tuple[bytes, float]]()  # what was in a file, and when this was seen first
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        """Raises UserError if the sign cannot be written."""
        with writing_to(self._sign):
            file = self._sign.open("xb", buffering=0)
            try:
                works = lock(file.fileno()) and _is_locked(self._sign)
                self._machine = _machine() if works else ""
                self._write(file, 0)
            except OSError:
                file.close()
                self._sign.unlink()
                raise
        self._thread = threading.Thread(target=self._renew, args=(file,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for part in list(self._held):
            self.give_back(part)
        with suppress(OSError):  # another worker may have finished all, and deleted the directory
            self._sign.unlink()

    def take(self, part: Path) -> bool:
        """Claim a part, which need not exist. Returns False if another worker, which seems to live, has claimed it.

        If the claim cannot be written, it returns True: writing the part then says why.
        """
        claim = _claim(part)
        try:
            if part not in self._held:
                with suppress(FileNotFoundError):
                    owner = claim.read_text(encoding="utf-8")
                    if self._lives(self.directory / Path(owner).name if owner else claim):
                        return False
                    claim.unlink()
                with claim.open("x", encoding="utf-8") as file:
                    file.write(self._sign.name)
        except FileExistsError:
            return False
        except OSError:
            with suppress(OSError):
                if not claim.read_text(encoding="utf-8"):  # the disk is full
                    claim.unlink()
            return True
        self._held.add(part)
        return True

    def give_back(self, part: Path) -> None:
        """Delete the claim of this worker, whether the part is complete or not."""
        self._held.discard(part)
        claim = _claim(part)
        with suppress(OSError):
            if claim.read_text(encoding="utf-8") == self._sign.name:  # otherwise another worker has taken it over
                claim.unlink()

    @contextmanager
    def alone(self, step: Path) -> Iterator[None]:
        """Wait until no other worker does the step with this name."""
        while not self.take(step):
            time.sleep(POLL)
        try:
            yield
        finally:
            self.give_back(step)

    def others(self) -> list[Path]:
        """Return the sign of each other worker that seems to live."""
        return [sign for sign in self.directory.glob(_SIGN) if sign != self._sign and self._lives(sign)]

    def needed(self) -> set[str]:
        """Return the names of the files in the directory that this worker still needs."""
        return {path.name for path in (self._sign, *map(_claim, self._held))}

    def rivals(self) -> bool:
        """Whether a worker with another `work` lives. Waits until it shows that, or has missed the time to show it."""
        first, until, own = dict[Path, bytes](), time.monotonic() + LEASE / 4, f" {self.work}".encode()
        while True:
            found = {sign: self._seen[sign][0] for sign in self.others()}
            found = {sign: content for sign, content in found.items() if not content.endswith(own)}
            first = found | first
            for sign, content in found.items():
                is_near = self._machine and content.startswith(self._machine.encode())  # then the lock has decided
                if content and (is_near or content != first[sign]):
                    return True
            if not found or time.monotonic() > until:
                return False
            time.sleep(POLL)

    def _lives(self, sign: Path) -> bool:
        now = time.monotonic()  # before the file is read: if this process hangs in between, the file is not older
        try:
            content = sign.read_bytes()
            if sign not in self._seen:
                age = self._sign.stat().st_mtime - sign.stat().st_mtime  # both by the clock of the disk
                self._seen[sign] = content, now - max(0.0, age)
        except FileNotFoundError:
            return False
        if self._seen[sign][0] != content:
            self._seen[sign] = content, now
        if self._machine and content.startswith(self._machine.encode()) and not _is_locked(sign):
            return False
        return now - self._seen[sign][1] < LEASE

    def _renew(self, file: FileIO) -> None:
        """Show that this worker lives, until it ends. Where the disk is full, another can only take its claims over."""
        count = 0
        with file:
            while not self._ended.wait(LEASE / 6):
                count += 1
                with suppress(OSError):
                    self._write(file, count)

    def _write(self, file: FileIO, count: int) -> None:
        file.seek(0)
        file.write(f"{self._machine} {count:09} {self.work}".encode())
        os.fsync(file.fileno())  # a network file system would show it to other machines only when the file is closed


def _claim(part: Path) -> Path:
    return part.with_name(own_name(f"{part.name}.claim"))


def _is_locked(path: Path) -> bool:
    """Whether a process has locked a file; False if the file system has no locks, or the file is gone."""
    try:
        with path.open("r+b") as file:
            return not lock(file.fileno())
    except FileNotFoundError:
        return False
    except OSError:  # of another user, for example: then the lease decides
        return True


def _machine() -> str:
    """Return a name of this machine since its start, for all its containers; empty if it has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return ""
