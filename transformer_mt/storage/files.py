"""Files that are replaced whole or not at all, and the names under which they are written until then."""

import errno
import hashlib
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from transformer_mt.errors import UserError

OWN_SUFFIX = ".transformer_mt-partial"
_PATIENCE = 10.0  # seconds to wait for another process that writes the same small file
_MOST_LINKS = 40  # as Linux follows
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
# No link is followed, no pipe waited for; bytes are written as they are. Windows has the last one only.
_OPENING = [getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")]
FLAGS = os.O_RDWR | sum(_OPENING)


def cure(error: Exception) -> str:
    """What to do about an error of writing: make room only where room is what is missing."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := re.search(r"\(os error (\d+)\)", str(error))):  # as safetensors says it
        number = int(found[1])
    if number in _NO_ROOM:
        return "make room on the disk"
    return "make sure that the directory exists and that you may write to it"


def own_name(name: str) -> str:
    """The name, in the same directory, under which only this program writes what is to become the file `name`."""
    if len(os.fsencode(name)) > 200:  # the longest name of a file has 255 bytes
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return f".{name}{OWN_SUFFIX}"


def in_the_way(partial: Path, path: Path) -> str:
    """What to say of something under a name of this program's that it did not write there."""
    return (
        f"{partial}: is in the way. Under this name {path.name} is written until it is whole, and what lies there was "
        "not written so: move it away, or name another place"
    )


@contextmanager
def replacing(path: Path, patience: float = 0.0) -> Iterator[BinaryIO]:
    """A file to write beside `path`, renamed to it at the end; if anything is raised, `path` stays as it was.

    As with `>` of a shell, a link stays and what it names is replaced; a pipe, a device or /dev/stdout is written
    to; the rights of a file that is replaced stay. Raises UserError if it cannot be written, or if another process
    is still writing the same file after so many seconds of patience.
    """
    try:
        target = _target(path)
        if (stream := _stream(target)) is not None:
            with stream as file:
                yield file
            return
        _check_replaceable(target)
        partial = target.with_name(own_name(target.name))
        with os.fdopen(_open_own(partial, path, patience), "wb") as file:  # as long as it is open, it is locked
            try:
                _set_rights(file.fileno(), target)
                yield file
                file.flush()
                _close_on_windows(file)
                os.replace(partial, target)
            except BaseException:
                _close_on_windows(file)
                partial.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); {cure(error)}, or name another place") from None


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file by this content, text as UTF-8. Raises UserError if it cannot be written."""
    with replacing(path, _PATIENCE) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


def open_and_hold(path: Path, opened: Callable[[], int | None], patience: float) -> int | None:
    """The descriptor of a file that is held until it is closed; None if another process holds it for so many seconds.

    `opened` opens the file at `path` and gives its descriptor, or None where it has to be tried again.
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
    """Hold a file until it is closed; False if another process holds it. Nothing is held where there are no locks."""
    if sys.platform == "win32":
        return True
    import fcntl  # which Windows has not

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _still_names(path: Path, descriptor: int) -> bool:
    """Whether the path is that of the open file, which may have been renamed or deleted since it was opened."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _target(path: Path) -> Path:
    """Where the links lead that begin at a path, which need not exist."""
    target = Path(os.path.realpath(path.parent), path.name)
    for _ in range(_MOST_LINKS):
        if target.parts[:2] == ("/", "proc") or not target.is_symlink():  # links there stand for open files
            return target
        named = target.parent / target.readlink()
        target = Path(os.path.realpath(named.parent), named.name)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _stream(target: Path) -> BinaryIO | None:
    """A pipe, a device or an open file, as /dev/stdout, which can only be written to; None for any other place."""
    if target.parts[:4] == ("/", "proc", str(os.getpid()), "fd") and target.name.isdecimal():
        return os.fdopen(os.dup(int(target.name)), "wb")  # so that others go on behind what is written here
    if target.parts[:2] == ("/", "proc") or (target.exists() and not target.is_file() and not target.is_dir()):
        return target.open("ab")
    return None


def _check_replaceable(target: Path) -> None:
    """Raises OSError for a directory, and for a file that this user may not write to."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _open_own(partial: Path, path: Path, patience: float) -> int:
    """Make the file `partial` and hold it, or take over the one that a killed process has left; its descriptor."""

    def opened() -> int | None:
        try:
            return os.open(partial, FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            pass
        try:
            _check_own(partial.lstat(), partial, path)
            return os.open(partial, FLAGS)
        except FileNotFoundError:  # it has just been renamed or deleted
            return None

    descriptor = open_and_hold(partial, opened, patience)
    if descriptor is None:
        raise UserError(f"{path}: another process is writing this file; wait until it has ended, or name another place")
    os.ftruncate(descriptor, 0)
    return descriptor


def _check_own(status: os.stat_result, partial: Path, path: Path) -> None:
    """Raises UserError unless a killed process of this user can have left the file."""
    is_mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or not is_mine:
        raise UserError(in_the_way(partial, path))


def _close_on_windows(file: BinaryIO) -> None:
    if sys.platform == "win32":  # an open file can be neither renamed nor deleted there
        file.close()


def _set_rights(descriptor: int, target: Path) -> None:
    """Those of the file that is to be replaced; a new one has those of the umask already."""
    if sys.platform == "win32" or not target.exists():
        return
    status = target.stat()
    with suppress(PermissionError):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
