"""Decides where compiled code is kept, and checks that place before any code from it is run.

Checking the owner and the access rights protects from other users of the machine. A digest protects only from damage:
whoever can write a file can write its digest, too.
"""

import hashlib
import importlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_mt.errors import CompilerFilesError
from transformer_mt.storage.files import MOST_LINKS, NotRegularError, open_regular

OTHERS_WRITE = 0o022
OTHERS_ENTER = 0o011
TORCH, TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"  # variables of PyTorch and of its compiler for GPUs
_HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"  # kept in the temporary directory, wherever the rest is
_CURE = "let XDG_CACHE_HOME name a directory of yours, or compile nothing (no --compile; training.compile=false)"


def cache_directory() -> Path:
    """Return this user's own directory for compiled code. It is made if it does not exist.

    Raises CompilerFilesError if it cannot be made, or if other users may write to it or to a directory above it.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        directory = (named if named.is_absolute() else Path.home() / ".cache") / "transformer_mt"
        return _private(directory)
    except (OSError, RuntimeError) as error:
        raise CompilerFilesError(f"compiled code can be kept nowhere ({error}): {_CURE}") from None


def use_own_cache() -> None:
    """Make PyTorch keep what it compiles in our directory, or in those that the user's environment names.

    Call it before anything is compiled, and before torch._inductor is imported. That import makes a directory, by
    default in the temporary directory, under a name that another user may have taken. Raises CompilerFilesError if one
    of the directories, or the temporary directory, is open to other users or holds files of theirs.
    """
    own, temporary = cache_directory(), Path(tempfile.gettempdir())
    try:
        refuse_strangers(temporary)
        for variable, name in ((TORCH, "torch"), (TRITON, "triton")):
            named = Path(os.environ.get(variable) or own / name)
            # PyTorch sets the variable itself, to its default. The user did not choose that.
            if named.parent == temporary and named.name.startswith("torchinductor_"):
                named = own / name
            directory = _private(named)
            _check_content(directory)
            os.environ[variable] = str(directory)
    except OSError as error:
        raise CompilerFilesError(f"compiled code can be kept nowhere ({error}): {_CURE}") from None
    os.environ[_HEADERS] = "0"
    if "torch._inductor.config" in sys.modules:  # it has read the variable already
        setattr(sys.modules["torch._inductor.config"], "cpp_cache_precompile_headers", False)  # noqa: B010


@contextmanager
def fresh_torch_cache(directory: Path) -> Iterator[None]:
    """Make PyTorch compile into this empty directory, so that it loads no code from before."""
    before = {variable: os.environ.get(variable) for variable in (TORCH, TRITON)}
    os.environ.update({TORCH: str(directory / "torch"), TRITON: str(directory / "triton")})
    try:
        yield
    finally:
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value


def make_no_cache() -> None:
    """Import PyTorch's compiler, as its optimizers do, without letting it make its directory. Nothing is compiled."""
    with tempfile.TemporaryDirectory() as empty, fresh_torch_cache(Path(empty)):
        importlib.import_module("torch._dynamo")


def refuse_strangers(path: Path, ours: bool = False) -> Path:
    """Return a path without links, after checking that no other user can change it or a directory above it.

    Each directory must belong to this user or to root. Other users may write to it only if it is sticky, as /tmp is,
    because there nobody can rename what another user made. With `ours` the last directory must belong to this user, and
    nobody else may write to it. Raises CompilerFilesError if a check fails, and OSError.
    """
    if not hasattr(os, "getuid"):  # Windows has other rights
        return path
    path = _without_links(path)
    for place in [*reversed(path.parents), path]:
        last = ours and place == path
        _check_owner(place, place.lstat(), last)
        mode = place.lstat().st_mode
        if mode & OTHERS_WRITE and (last or not mode & stat.S_ISVTX):
            raise CompilerFilesError(
                f"{place}: other users may write to it, and code from there would be run: "
                f"take the right from them (chmod go-w), or {_CURE}"
            )
    return path


def read_digest(path: Path) -> str:
    """Return the SHA-256 of a compiled file that this user keeps.

    Raises CompilerFilesError if it is a link, not a regular file, or another user's, or if others may write to it.
    """
    try:
        with open_regular(path, follow_links=False) as file:
            status = os.fstat(file.fileno())
            if hasattr(os, "getuid"):
                _check_owner(path, status, ours=True)
                if status.st_mode & OTHERS_WRITE:
                    raise CompilerFilesError(f"{path}: other users may write to it, and it would be run: remove it")
            return hashlib.file_digest(file, "sha256").hexdigest()
    except NotRegularError:
        raise CompilerFilesError(f"{path}: is a link, or not a regular file, and it would be run: remove it") from None


def _private(directory: Path) -> Path:
    """Make a directory, and those above it, that only this user may enter."""
    directory = _without_links(directory)
    for place in [*reversed(directory.parents), directory]:
        if not place.exists():
            refuse_strangers(place.parent)
            place.mkdir(mode=0o700, exist_ok=True)
    return refuse_strangers(directory, ours=True)


def _without_links(path: Path) -> Path:
    """Follow every link in a path. Raises CompilerFilesError if one is another user's, or if they lead in a circle."""
    path = Path(os.path.abspath(path))
    for _ in range(MOST_LINKS):
        link = next((place for place in [*reversed(path.parents), path] if place.is_symlink()), None)
        if link is None:
            return path
        _check_owner(link, link.lstat(), ours=False)
        path = Path(os.path.abspath(link.parent / os.readlink(link) / path.relative_to(link)))
    raise CompilerFilesError(f"{path}: its links lead in a circle: {_CURE}")


def _check_owner(path: Path, status: os.stat_result, ours: bool) -> None:
    if hasattr(os, "getuid") and status.st_uid not in ({os.getuid()} if ours else {0, os.getuid()}):
        raise CompilerFilesError(
            f"{path}: belongs to another user (number {status.st_uid}), and code from there would be run: {_CURE}"
        )


def _check_content(directory: Path) -> None:
    """Check the files in PyTorch's cache: each must belong to this user, and none may be a link.

    Nor may others write to a file, if they can enter the directory. PyTorch gives its files the rights that the umask
    leaves, and these often let the group write. That does no harm in a directory that nobody else can enter, such as
    those that this program makes.
    """
    entered = directory.stat().st_mode & OTHERS_ENTER
    for place, directories, files in os.walk(directory):
        for name in [*directories, *files]:
            path = Path(place, name)
            try:
                status = path.lstat()
            except FileNotFoundError:  # another process is compiling, and has just deleted it
                continue
            if stat.S_ISLNK(status.st_mode):
                raise CompilerFilesError(f"{path}: is a link, and what it leads to would be run: remove {directory}")
            _check_owner(path, status, ours=True)
            if entered and status.st_mode & OTHERS_WRITE:
                raise CompilerFilesError(
                    f"{path}: other users may write to it, and it would be run: remove {directory} with all it holds"
                )
