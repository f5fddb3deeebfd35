"""Reads regular files only, and replaces a file only when the new one is complete.

Until a file is complete, it has a temporary name that only this program uses. It is also locked, so that the remains of
a killed process differ from a file that another is writing. (The package filelock would leave a second file.)
"""

import errno
import hashlib
import json
import math
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from transformer_mt.base.errors import UserError
from transformer_mt.base.system import flush_to_disk, lock, open_to_lock, user_id

OWN_SUFFIX = ".transformer_mt-partial"
_PATIENCE = 10.0  # seconds to wait while another process writes the same small file
_MOST_BYTES, _MOST_JSON = 50_000_000, 20_000_000  # of a file that is read at once; JSON
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def open_regular(path: Path) -> FileIO:
    """Open a file to read its bytes. Raises OSError, without waiting, also if it is a pipe, a device or a directory."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return FileIO(path)


def read_regular(path: Path) -> bytes:
    """Return all bytes of a file. Raises the OSErrors of `open_regular`, and one if it has more than 50 megabytes."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > _MOST_BYTES:  # the directory of a stranger may fill the memory
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.readall()


def cure(error: Exception) -> str:
    """Return advice about an error of writing: make room on the disk, or check the directory and its rights."""
    if any(os.strerror(number) in str(error) for number in _NO_ROOM):  # safetensors has its own class of errors
        return "make room on the disk"
    return "make sure that the directory exists and that you may write to it"


def own_name(name: str) -> str:
    """Return the temporary name, used only by this program, of a file that becomes `name` in the same directory."""
    if len(os.fsencode(name)) > 200:  # a file name has at most 255 bytes
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return f".{name}{OWN_SUFFIX}"


def in_the_way(partial: Path, path: Path) -> str:
    """Return the message about a file that has the temporary name of `path`, but is not from this program."""
    return (
        f"{partial} exists, and this program did not create it. The program needs this name while it writes "
        f"{path.name}. Move it away, or name another place"
    )


@contextmanager
def writing_to(path: Path, cls: type[UserError] = UserError, advice: str = "or name another place") -> Iterator[None]:
    """Turn an OSError into an error of this class that says that `path` cannot be written, and ends with the advice."""
    try:
        yield
    except OSError as error:
        raise cls(f"{path}: cannot be written ({error.strerror or error}); {cure(error)}, {advice}") from None


@contextmanager
def replacing(path: Path, patience: float = 0.0, durable: bool = False, writer: str = "") -> Iterator[BinaryIO]:
    """Open a file for writing that becomes `path` at the end. After an error, `path` is unchanged.

    The file gets a temporary name beside `path`, and is renamed at the end. As with `>` in a shell, if `path` is a
    link, the target of the link is replaced; a pipe, a device or /dev/stdout is written to directly; and a replaced
    file keeps its access rights. With `durable`, `path` is complete even after a power failure. Raises UserError if
    writing fails, or if another process still writes the same file after `patience` seconds. Processes that may write
    it at the same time give different names as `writer`, which become a part of the temporary name.
    """
    with writing_to(path):
        if is_stream(path):
            # A copy of the descriptor shares the position in the file, so later output of other code comes after ours.
            descriptor = _standard(path)
            with path.open("ab") if descriptor is None else os.fdopen(os.dup(descriptor), "wb") as file:
                yield file
            return
        target = replaceable(path)
        partial = target.with_name(own_name(target.name + writer))
        with _open_own(partial, path, patience) as file:  # the lock lasts as long as the file is open
            try:
                if target.exists():
                    shutil.copymode(target, partial)
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
                os.replace(partial, target)
                if durable:
                    flush_to_disk(target.parent)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise


def replaceable(path: Path) -> Path:
    """Return the target of links at `path`. Raises OSError if this is a directory or a file that is read-only."""
    target = target_of(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return target


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file by this content. Text becomes UTF-8. Raises UserError if writing fails."""
    with replacing(path, _PATIENCE) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


def write_json(path: Path, content: object) -> None:
    """Replace a file by this content, as JSON. Raises UserError if writing fails."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def open_locked(path: Path, patience: float) -> int | None:
    """Open a file, or create it if it is missing, and lock it until it is closed or this process ends.

    Returns its descriptor; None if another process still has it locked after `patience` seconds. Raises OSError, also
    if it is a link. If the file system has no locks, the file is only opened.
    """
    until = time.monotonic() + patience
    while True:
        with ExitStack() as stack:
            stack.callback(os.close, descriptor := open_to_lock(path))
            is_free = lock(descriptor)
            if is_free and _is_still_at(path, descriptor):
                stack.pop_all()
                return descriptor
        if not is_free:
            if time.monotonic() >= until:
                return None
            time.sleep(0.02 if patience < 60 else 0.5)


def target_of(path: Path) -> Path:
    """Follow links from a path to a target, which need not exist. Raises OSError if the links form a circle."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


def is_stream(path: Path) -> bool:
    """Whether the path is a pipe, a device or standard output, to which `replacing` would write directly."""
    return path.exists() and (_standard(path) is not None or not (path.is_file() or path.is_dir()))


def _standard(path: Path) -> int | None:
    """Return the descriptor of standard output or error if the path is the same file, such as /dev/stdout; or None."""
    for descriptor in (1, 2):
        with suppress(OSError):  # it may be closed
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
    return None


def _open_own(partial: Path, path: Path, patience: float) -> BinaryIO:
    """Make and lock the file `partial`, or reuse and empty the file that a killed process of this user left."""
    with suppress(FileNotFoundError):
        status = partial.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_uid != user_id():
            raise UserError(in_the_way(partial, path))
    descriptor = open_locked(partial, patience)
    if descriptor is None:
        raise UserError(f"{path}: another process is writing this file; wait until it has ended, or name another place")
    os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "wb")


def _is_still_at(path: Path, descriptor: int) -> bool:
    """Whether the path is still that of the open file, which another process may have renamed or deleted."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def read_json(path: Path) -> Any:
    """Return the values in a JSON file.

    Raises OSError if it cannot be read or is not a regular file; ValueError if it is too large, nested too deeply, or
    not JSON.
    """
    if path.stat().st_size > _MOST_JSON:  # a value takes twenty times as much memory as text
        raise ValueError(f"it has more than {_MOST_JSON:,} bytes")
    return parse_json(read_regular(path).decode("utf-8"))


def parse_json(text: str) -> Any:
    """Return the values in a JSON text. Raises the ValueErrors of `read_json`, also for NaN, Infinity and 1e999."""
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def finite(number: float, digits: int) -> float | None:
    """Round a number to `digits` digits; None, which is null in JSON, if it is infinite or not a number."""
    return round(number, digits) if math.isfinite(number) else None


def _finite(text: str) -> float:
    if math.isfinite(number := float(text)):
        return number
    raise ValueError(f"{text[:20]} is not a finite number")
