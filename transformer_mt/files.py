"""Files that are replaced whole or not at all."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from transformer_mt.errors import UserError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def cure(error: Exception) -> str:
    """What to do about an error of writing: make room only where room is what is missing."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := re.search(r"\(os error (\d+)\)", str(error))):  # as safetensors says it
        number = int(found[1])
    if number in _NO_ROOM:
        return "make room on the disk"
    return "make sure that the directory exists and that you may write to it"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write beside `path`, renamed to it at the end; if anything is raised, `path` stays as it was.

    Raises UserError if it cannot be written.
    """
    partial = path.with_name(path.name + ".partial")
    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced, only written to
        partial = path
    try:
        with partial.open("wb") as file:
            yield file
        if partial != path:
            os.replace(partial, path)
    except OSError as error:
        _forget(partial)
        raise UserError(f"{path}: cannot be written ({error.strerror}); {cure(error)}, or name another place") from None
    except BaseException:
        _forget(partial)
        raise


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file by this content, text as UTF-8. Raises UserError if it cannot be written."""
    with replacing(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """A new directory beside `path`, renamed to it at the end; if anything is raised, `path` stays as it was.

    Raises UserError if it cannot be written.
    """
    path = Path(os.path.abspath(path))  # so that "." has a name
    partial, old = path.with_name(path.name + ".partial"), path.with_name(path.name + ".old")
    try:
        for left in (partial, old):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        if path.exists():
            os.replace(path, old)
        os.replace(partial, path)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); {cure(error)}, or name another place"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _forget(partial: Path) -> None:
    if partial.is_file():
        partial.unlink()
