"""Makes and locks directories that belong to one stage, and never uses one that the stage did not make."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.base.errors import DirectoryError
from transformer_mt.storage.files import in_the_way, open_locked, own_name, writing_to

LOCK = "lock"  # the process that writes to the directory locks this file; its text names the stage that made it


@dataclass(frozen=True)
class Owner:
    """A stage to which a directory belongs."""

    stage: str
    doing: str
    """What the stage does there, such as "trains here"."""
    cure: str
    """What the user can do if the directory cannot be used, such as "choose another run_dir"."""

    @property
    def mark(self) -> bytes:
        """The content of the file `lock` in a directory of this stage."""
        return f"`transformer_mt {self.stage}` made this directory.\n".encode()


def check_own(directory: Path, owner: Owner, inside: Path | None = None) -> None:
    """Raises DirectoryError if a directory without the owner's lock has an entry other than the path `inside`."""
    entries = list[str]()
    with suppress(FileNotFoundError, NotADirectoryError):
        entries = sorted(os.listdir(directory))
    mark = _mark(directory / LOCK) if LOCK in entries else b""
    if mark == owner.mark:
        return
    if LOCK in entries and not os.path.lexists(directory / LOCK):  # its owner is deleting the directory
        return check_own(directory, owner, inside)
    own, top = {LOCK}, os.path.realpath(directory)
    if inside is not None and (within := Path(os.path.realpath(inside))).is_relative_to(top):
        own |= set(within.relative_to(top).parts[:1])
    is_cut_off = mark is not None and owner.mark.startswith(mark)  # after a kill while writing the mark
    foreign = [name for name in entries if name not in own] if is_cut_off else [LOCK]
    if foreign:
        raise DirectoryError(
            f"{directory} is not empty, and `{owner.stage}` did not make it: it contains {foreign[0]}. Nothing was "
            f"changed there. {owner.cure[0].upper()}{owner.cure[1:]}, or move its content away"
        )


@contextmanager
def hold(directory: Path, owner: Owner, inside: Path | None = None, patience: float = 0.0) -> Iterator[None]:
    """Make a directory, or reuse one that the owner made, and lock it so that no other process writes to it.

    Raises DirectoryError as `check_own` does, or if another process still has it locked after `patience` seconds.
    """
    with ExitStack() as stack:
        with writing_to(directory, DirectoryError, f"or {owner.cure}"):
            while True:
                directory.mkdir(parents=True, exist_ok=True)
                check_own(directory, owner, inside)
                with suppress(FileNotFoundError):  # its owner has just deleted it
                    descriptor = open_locked(directory / LOCK, min(patience, 2.0))
                    if descriptor is None and patience > 2.0:
                        print(f"{directory}: waiting, while another process {owner.doing}", file=sys.stderr)
                        descriptor = open_locked(directory / LOCK, patience)
                    break
            if descriptor is not None:
                stack.callback(os.close, descriptor)
                if os.read(descriptor, len(owner.mark)) != owner.mark:
                    os.lseek(descriptor, 0, os.SEEK_SET)
                    os.write(descriptor, owner.mark)
        if descriptor is None:
            raise DirectoryError(f"{directory}: another process {owner.doing}; wait, or {owner.cure}")
        yield


@contextmanager
def temporary_directory(path: Path) -> Iterator[Path]:
    """Make an empty directory beside `path` for its new content, and delete this directory at the end.

    The remains of a killed process are cleared first (see `_clear`). Raises the DirectoryErrors of `hold`.
    """
    place = path.with_name(own_name(path.name))
    owner = Owner("temporary", f"is writing {path}", f"name another place than {path}")
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise DirectoryError(in_the_way(place, path))
    with hold(place, owner):
        try:
            _clear(place, path)
            (place / "new").mkdir()
            yield place / "new"
        finally:
            _clear(place, path)
            with suppress(OSError):  # keep the directory if it now contains files that are not from this program
                (place / LOCK).unlink()
                place.rmdir()


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """Make a new directory that becomes `path` at the end. After an error, `path` is unchanged.

    If the process is killed between the two renames, the next call moves the old one back. Raises DirectoryError.
    """
    path = Path(os.path.realpath(path))  # so that "." has a name, and a link is kept
    with writing_to(path, DirectoryError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_directory(path) as new:
            yield new
            if path.exists():
                os.rename(path, new.with_name("old"))
            os.rename(new, path)


def _clear(place: Path, path: Path) -> None:
    """Delete the remains of a call. If both directories still exist, move the old one back to `path` first."""
    new, old = place / "new", place / "old"
    if old.exists() and new.exists():
        if path.exists():
            raise DirectoryError(
                f"{old} is the previous version of {path}: move it to where you want it, and try again"
            )
        os.rename(old, path)
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _mark(path: Path) -> bytes | None:
    """Return the first bytes of a lock; None if it is missing or not a regular file."""
    if path.is_symlink() or not path.is_file():
        return None
    with suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(200)
    return None
