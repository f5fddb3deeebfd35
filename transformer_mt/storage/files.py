"""Reads regular files only, and replaces a file as a whole or not at all.

Until a file is complete, it is written under a name that only this program uses.
"""

import errno
import hashlib
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from transformer_mt.errors import UserError

OWN_SUFFIX = ".transformer_mt-partial"
_PATIENCE = 10.0  # seconds to wait while another process writes the same small file
MOST_LINKS = 40  # Linux, too, follows at most this many
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
# Do not wait for a pipe, and do not change bytes. Of these and O_NOFOLLOW, Windows has only O_BINARY.
_PLAIN = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
FLAGS = os.O_RDWR | _PLAIN | _NO_LINK


class NotRegularError(OSError):
    """A link that must not be followed, or a pipe, a device, a socket or a directory in the place of a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


def open_regular(path: Path, follow_links: bool = True) -> FileIO:
    """Open a file to read its bytes.

    Raises NotRegularError, without waiting, if it is not a regular file, or if it is a link and `follow_links` is
    False; and OSError if it cannot be opened.
    """
    if not follow_links and path.is_symlink():  # O_NOFOLLOW refuses it, too, but not on every system
        raise NotRegularError(path)
    descriptor = os.open(path, os.O_RDONLY | _PLAIN | (0 if follow_links else _NO_LINK))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(path)
    return FileIO(descriptor)


def read_regular(path: Path) -> bytes:
    """Return all bytes of a file. Raises OSError as `open_regular` does."""
    with open_regular(path) as file:
        return file.readall()


def cure(error: Exception) -> str:
    """Return what to do about an error of writing: make room on the disk, or check the directory and its rights."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := re.search(r"\(os error (\d+)\)", str(error))):  # the form of safetensors
        number = int(found[1])
    if number in _NO_ROOM:
        return "make room on the disk"
    return "make sure that the directory exists and that you may write to it"


def own_name(name: str) -> str:
    """Return the name under which only this program writes a file, in the same directory, until it becomes `name`."""
    if len(os.fsencode(name)) > 200:  # a file name has at most 255 bytes
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return f".{name}{OWN_SUFFIX}"


def in_the_way(partial: Path, path: Path) -> str:
    """Return the message about something that stands under one of this program's names, but was not written by it."""
    return (
        f"{partial}: is in the way. This name is used for {path.name} until it is complete, but this program did not "
        "write what is there now: move it away, or name another place"
    )


@contextmanager
def replacing(path: Path, patience: float = 0.0, durable: bool = False) -> Iterator[BinaryIO]:
    """Give a file to write that becomes `path` at the end. If anything is raised, `path` stays as it was.

    The file is written beside `path` and then renamed. As with `>` in a shell, a link stays and the file it leads to is
    replaced, a pipe, a device or /dev/stdout is written to, and a file that is replaced keeps its access rights. With
    `durable`, this holds even if the power fails: the content is on the disk before the name is. Raises
    UserError if it cannot be written, or if another process still writes the same file after `patience` seconds.
    """
    try:
        target = target_of(path)
        if (stream := _stream(target)) is not None:
            with stream as file:
                yield file
            return
        _check_replaceable(target)
        partial = target.with_name(own_name(target.name))
        with os.fdopen(_open_own(partial, path, patience), "wb") as file:  # it is locked as long as it is open
            try:
                _set_rights(file.fileno(), target)
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
                _close_on_windows(file)
                os.replace(partial, target)
                if durable:
                    _flush_directory(target.parent)
            except BaseException:
                _close_on_windows(file)
                partial.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); {cure(error)}, or name another place") from None


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file by this content; text is written as UTF-8. Raises UserError if it cannot be written."""
    with replacing(path, _PATIENCE) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


def open_and_hold(path: Path, opened: Callable[[], int | None], patience: float) -> int | None:
    """Open a file and lock it until it is closed. Returns its descriptor, or None if another process keeps it locked.

    `opened` opens the file at `path` and returns its descriptor, or None if it has to be called again. `patience` is
    how long to wait for another process, in seconds.
    """
    until = time.monotonic() + patience
    while True:
        descriptor = opened()
        if descriptor is None:
            continue
        is_held = False
        try:
            if lock(descriptor):
                is_held = _still_names(path, descriptor)
                if is_held:
                    return descriptor
            elif time.monotonic() >= until:
                return None
            else:
                time.sleep(0.02)
        finally:
            if not is_held:
                os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Lock a file until it is closed, where there are locks. Returns False if another process has locked it."""
    if sys.platform == "win32":
        return True
    import fcntl  # Windows does not have it

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _still_names(path: Path, descriptor: int) -> bool:
    """Whether the path still leads to the open file, which another process may have renamed or deleted."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def target_of(path: Path) -> Path:
    """Follow the links that begin at a path; the end need not exist. Raises OSError if they lead in a circle."""
    target = Path(os.path.realpath(path.parent), path.name)
    for _ in range(MOST_LINKS):
        if target.parts[:2] == ("/", "proc") or not target.is_symlink():  # links in /proc stand for open files
            return target
        named = target.parent / target.readlink()
        target = Path(os.path.realpath(named.parent), named.name)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def is_stream(path: Path) -> bool:
    """Whether `replacing` would write to a pipe, a device or an open file there, which cannot be replaced.

    Raises OSError if links lead in a circle.
    """
    target = target_of(path)
    return target.parts[:2] == ("/", "proc") or (target.exists() and not target.is_file() and not target.is_dir())


def _stream(target: Path) -> BinaryIO | None:
    """Open a pipe, a device or an open file such as /dev/stdout, which cannot be replaced; None for any other place."""
    if target.parts[:4] == ("/", "proc", str(os.getpid()), "fd") and target.name.isdecimal():
        # A copy of the descriptor has the same position in the file, so others write on behind what is written here.
        return os.fdopen(os.dup(int(target.name)), "wb")
    return target.open("ab") if is_stream(target) else None


def _flush_directory(directory: Path) -> None:
    """Bring the names in a directory to the disk, where the system can do that."""
    if sys.platform == "win32":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_replaceable(target: Path) -> None:
    """Raises OSError if it is a directory, or a file that this user may not write to."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _open_own(partial: Path, path: Path, patience: float) -> int:
    """Make and lock the file `partial`, or take over the one that a killed process left. Returns its descriptor."""

    def opened() -> int | None:
        try:
            return os.open(partial, FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            pass
        try:
            _check_own(partial.lstat(), partial, path)
            return os.open(partial, FLAGS)
        except FileNotFoundError:  # it was just renamed or deleted
            return None

    descriptor = open_and_hold(partial, opened, patience)
    if descriptor is None:
        raise UserError(f"{path}: another process is writing this file; wait until it has ended, or name another place")
    os.ftruncate(descriptor, 0)
    return descriptor


def _check_own(status: os.stat_result, partial: Path, path: Path) -> None:
    """Raises UserError if this cannot be a file that a killed process of this user left."""
    is_mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or not is_mine:
        raise UserError(in_the_way(partial, path))


def _close_on_windows(file: BinaryIO) -> None:
    if sys.platform == "win32":  # an open file cannot be renamed or deleted there
        file.close()


def _set_rights(descriptor: int, target: Path) -> None:
    """Give a file the access rights of the file that it replaces. A new file keeps those that the umask gave it."""
    if sys.platform == "win32" or not target.exists():
        return
    status = target.stat()
    with suppress(PermissionError):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
