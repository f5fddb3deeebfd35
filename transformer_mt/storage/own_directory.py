"""Directories that one stage fills, and that it never takes from anybody else."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.errors import DirectoryError
from transformer_mt.storage.files import FLAGS, cure, in_the_way, open_and_hold, own_name

LOCK = "lock"  # it is held by who writes the directory, and says whose the directory is


@dataclass(frozen=True)
class Owner:
    """A stage that fills a directory."""

    stage: str
    doing: str
    """As "trains here"."""
    cure: str
    """What to do if the directory is not to be had, as "choose another run_dir"."""

    @property
    def mark(self) -> bytes:
        """What `lock` holds in a directory of this stage."""
        return f"`transformer_mt {self.stage}` made this directory.\n".encode()


def foreign_entry(directory: Path, owner: Owner, inside: Path | None = None, is_older: bool = False) -> str | None:
    """The name of the first entry in a directory that the owner did not make; None if there is none.

    A marked directory is the owner's, and so is an unmarked one of an older version. `inside` may lie in it.
    """
    entries = sorted(os.listdir(directory)) if directory.is_dir() else []
    if LOCK in entries:
        mark = _mark(directory / LOCK)
        if mark == owner.mark:
            return None
        if mark is None or not owner.mark.startswith(mark):  # a kill may have cut it off, and older ones are empty
            return LOCK
    if is_older:
        return None
    own = {LOCK}
    if inside is not None and (within := Path(os.path.realpath(inside))).is_relative_to(os.path.realpath(directory)):
        own |= set(within.relative_to(os.path.realpath(directory)).parts[:1])
    return next((name for name in entries if name not in own), None)


def check_own(directory: Path, owner: Owner, inside: Path | None = None, is_older: bool = False) -> None:
    """Raises DirectoryError if a directory holds what the owner did not make, as `foreign_entry` says."""
    if (name := foreign_entry(directory, owner, inside, is_older)) is not None:
        raise DirectoryError(
            f"{directory} is not empty, and `{owner.stage}` did not make it: it holds {name}, and nothing was changed "
            f"there. {owner.cure[0].upper()}{owner.cure[1:]}, or move away what is there"
        )


@contextmanager
def hold(
    directory: Path, owner: Owner, inside: Path | None = None, is_older: bool = False, patience: float = 0.0
) -> Iterator[None]:
    """Make a directory, or take one of the owner's, and be the only process that writes it.

    Raises DirectoryError if it holds what the owner did not make, or if another process still holds it after so many
    seconds of patience.
    """
    check_own(directory, owner, inside, is_older)
    try:
        descriptor = _open_lock(directory, patience)
        if descriptor is None:
            raise DirectoryError(f"{directory}: another process {owner.doing}; wait, or {owner.cure}")
    except OSError as error:
        raise DirectoryError(
            f"{directory}: cannot be written ({error.strerror}); {cure(error)}, or {owner.cure}"
        ) from None
    with os.fdopen(descriptor, "r+b") as file:  # on a file that is only read, a network's file system locks nothing
        if file.read() != owner.mark:
            file.seek(0)
            file.write(owner.mark)
            file.flush()
        yield


@contextmanager
def temporary_directory(path: Path) -> Iterator[Path]:
    """A new directory beside `path`, under a name of this program's, where `path` is made ready; deleted at the end.

    What a killed process left of it is deleted first; if that had just moved the directory `path` into it, it is
    moved back. Raises DirectoryError as `hold` does.
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
            with suppress(OSError):  # what somebody else has put there meanwhile stays
                (place / LOCK).unlink()
                place.rmdir()


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """A new directory beside `path`, renamed to it at the end; if anything is raised, `path` stays as it was.

    A directory cannot be renamed to another that is full: killed between two renames, there is none of this name
    until the next call moves the old one back. Raises DirectoryError if it cannot be written.
    """
    path = Path(os.path.realpath(path))  # so that "." has a name, and a link stays
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_directory(path) as new:
            yield new
            if path.exists():
                os.rename(path, new.with_name("old"))
            os.rename(new, path)
    except OSError as error:
        raise DirectoryError(
            f"{path}: cannot be written ({error.strerror or error}); {cure(error)}, or name another place"
        ) from None


def _clear(place: Path, path: Path) -> None:
    """Delete what a call has left. As long as the new directory is in there, the old one still counts."""
    new, old = place / "new", place / "old"
    if old.exists() and new.exists():
        if path.exists():
            raise DirectoryError(f"{old} is what {path} was before: move it to where you want it, and try again")
        os.rename(old, path)
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _mark(path: Path) -> bytes | None:
    """The first bytes of a file; None if it is none."""
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(200)


def _open_lock(directory: Path, patience: float) -> int | None:
    """The descriptor of the directory's lock, which is held; None if another process goes on holding it."""

    def opened() -> int | None:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            return os.open(directory / LOCK, FLAGS | os.O_CREAT, 0o666)
        except FileNotFoundError:  # the directory has just been deleted
            return None

    return open_and_hold(directory / LOCK, opened, patience)
