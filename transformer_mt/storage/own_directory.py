"""Makes and locks the directories that one stage fills, and never takes one that somebody else made."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.base.errors import DirectoryError
from transformer_mt.storage.files import cure, in_the_way, open_locked, own_name

LOCK = "lock"  # the process that writes the directory locks this file; the text in it names the stage that made it


@dataclass(frozen=True)
class Owner:
    """A stage that fills a directory."""

    stage: str
    doing: str
    """What it does there, such as "trains here"."""
    cure: str
    """What the user can do if the directory cannot be used, such as "choose another run_dir"."""

    @property
    def mark(self) -> bytes:
        """The content of the file `lock` in a directory of this stage."""
        return f"`transformer_mt {self.stage}` made this directory.\n".encode()


def check_own(directory: Path, owner: Owner, inside: Path | None = None) -> None:
    """Raises DirectoryError if a directory has an entry that the owner did not make, and names the first such entry.

    If the directory has the owner's lock, all in it is the owner's. `inside`, a path, may lie in it in any case.
    """
    entries = sorted(os.listdir(directory)) if directory.is_dir() else []
    mark = _mark(directory / LOCK) if LOCK in entries else b""
    if mark == owner.mark:
        return
    own, top = {LOCK}, os.path.realpath(directory)
    if inside is not None and (within := Path(os.path.realpath(inside))).is_relative_to(top):
        own |= set(within.relative_to(top).parts[:1])
    is_cut_off = mark is not None and owner.mark.startswith(mark)  # by a kill
    foreign = [name for name in entries if name not in own] if is_cut_off else [LOCK]
    if foreign:
        raise DirectoryError(
            f"{directory} is not empty, and `{owner.stage}` did not make it: it holds {foreign[0]}, and nothing was "
            f"changed there. {owner.cure[0].upper()}{owner.cure[1:]}, or move away what is there"
        )


@contextmanager
def hold(directory: Path, owner: Owner, inside: Path | None = None, patience: float = 0.0) -> Iterator[None]:
    """Make a directory, or take one that the owner made, and lock it so that no other process writes it.

    `inside` is as in `check_own`. Raises DirectoryError if it holds something that the owner did not make, or if
    another process still has it locked after `patience` seconds.
    """
    check_own(directory, owner, inside)
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            descriptor = open_locked(directory / LOCK, patience)
            if descriptor is not None:
                stack.callback(os.close, descriptor)
                if os.pread(descriptor, len(owner.mark), 0) != owner.mark:
                    os.pwrite(descriptor, owner.mark, 0)
        except OSError as error:
            raise DirectoryError(
                f"{directory}: cannot be written ({error.strerror}); {cure(error)}, or {owner.cure}"
            ) from None
        if descriptor is None:
            raise DirectoryError(f"{directory}: another process {owner.doing}; wait, or {owner.cure}")
        yield


@contextmanager
def temporary_directory(path: Path) -> Iterator[Path]:
    """Give an empty directory beside `path`, in which its new content is made. It is deleted at the end.

    It has a name that only this program uses. What a killed process left there is deleted first; but if that process
    had just moved the old `path` there, it is moved back. Raises DirectoryError as `hold` does.
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
            with suppress(OSError):  # what somebody else put there in the meantime stays
                (place / LOCK).unlink()
                place.rmdir()


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """Give a new directory that becomes `path` at the end. If anything is raised, `path` stays as it was.

    A directory cannot be renamed to one that is not empty, so this takes two renames. If the process is killed between
    them, there is no `path` until the next call moves the old one back. Raises DirectoryError if it cannot be written.
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
    """Delete what a call left. If both directories are still there, the old one is moved back to `path`."""
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
    """Return the first bytes of a lock; None if it is not a regular file."""
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(200)
