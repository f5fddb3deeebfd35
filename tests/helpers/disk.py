"""Disks that are full: by a limit of the process, or a small one of memory where mounting is permitted."""

import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def mounted(place: Path, num_bytes: int) -> bool:
    """Mount an empty disk of this size in a directory. Returns False where that is not permitted."""
    mount = shutil.which("mount")
    place.mkdir(exist_ok=True)
    command = [mount or "", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(place)]
    return mount is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(place: Path) -> None:
    """Take away what `mounted` has mounted."""
    subprocess.run([shutil.which("umount") or "umount", str(place)], check=True)


def fill(place: Path, room: int) -> Path:
    """Leave so many bytes of a disk free. Returns the file that takes the others."""
    ballast = place / "ballast"
    with ballast.open("wb") as file:
        file.write(bytes(shutil.disk_usage(place).free - room))
    return ballast
