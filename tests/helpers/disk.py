"""Disks that are full: by a limit of the process, or a small one of memory where mounting is permitted."""

import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: writing more fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


class SmallDisk:
    """A file system of 2 MB in memory."""

    def __init__(self, path: Path) -> None:
        self.path, self.filler = path, path / "filler"

    def fill(self, but: int = 0) -> None:
        """Leave no byte, or so many."""
        with self.filler.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1024))
            except OSError:
                file.truncate(file.tell() - but)

    def make_room(self) -> None:
        """Delete what fills it."""
        self.filler.unlink()


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Mount a small disk. Skips the test where that is not permitted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk may not be mounted here")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
