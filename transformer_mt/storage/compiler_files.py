"""Where compiled code is kept, and the checks before any of it is loaded: what lies there is run.

Owner and rights protect from other users of the machine. A digest protects from damage, not from them: who may write
a file may write its digest, too.
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

OTHERS_WRITE = 0o022
OTHERS_ENTER = 0o011
MOST_LINKS = 40  # as Linux follows, at most
TORCH, TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"  # read by PyTorch and by its compiler for GPUs
_HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"  # kept in the temporary directory, wherever the rest is
_CURE = "let XDG_CACHE_HOME name a directory of yours, or compile nothing (no --compile; training.compile=false)"


def cache_directory() -> Path:
    """Ours alone, and made if it is not there.

    Raises CompilerFilesError if it cannot be made, or if others may write to it or to a directory above it.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        directory = (named if named.is_absolute() else Path.home() / ".cache") / "transformer_mt"
        return _private(directory)
    except (OSError, RuntimeError) as error:
        raise CompilerFilesError(f"compiled code can be kept nowhere ({error}): {_CURE}") from None


def use_own_cache() -> None:
    """Have PyTorch keep what it compiles in our directory, or in those that the user's environment names.

    To be called before anything is compiled, and before torch._inductor is imported, which makes its directory: by
    default one in the temporary directory, under a name that anybody may have taken before. Raises CompilerFilesError
    if such a directory, or the temporary directory, is open to other users or holds files of theirs.
    """
    own, temporary = cache_directory(), Path(tempfile.gettempdir())
    try:
        refuse_strangers(temporary)
        for variable, name in ((TORCH, "torch"), (TRITON, "triton")):
            named = Path(os.environ.get(variable) or own / name)
            # PyTorch sets the variable, too: to its default, which the user did not choose.
            if named.parent == temporary and named.name.startswith("torchinductor_"):
                named = own / name
            directory = _private(named)
            _check_content(directory)
            os.environ[variable] = str(directory)
    except OSError as error:
        raise CompilerFilesError(f"compiled code can be kept nowhere ({error}): {_CURE}") from None
    os.environ[_HEADERS] = "0"
    if "torch._inductor.config" in sys.modules:  # which has read the variable
        setattr(sys.modules["torch._inductor.config"], "cpp_cache_precompile_headers", False)  # noqa: B010


@contextmanager
def fresh_torch_cache(directory: Path) -> Iterator[None]:
    """PyTorch compiles into this empty directory, so that it loads nothing that was there before."""
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
    """Import PyTorch's compiler, as its optimizers do, but keep it from making its directory; nothing is compiled."""
    with tempfile.TemporaryDirectory() as empty, fresh_torch_cache(Path(empty)):
        importlib.import_module("torch._dynamo")


def refuse_strangers(path: Path, ours: bool = False) -> Path:
    """The same place without links, if nobody else can change it or the way to it.

    Each directory has to belong to us or to root, and others may write to it only if it is sticky, as /tmp is, where
    one cannot rename what another has made. With `ours` the last has to belong to us and be closed to their writing.
    Raises CompilerFilesError for what is not so, and OSError.
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
                f"{place}: other users may write to it, and what lies there or below is run: "
                f"take the right from them (chmod go-w), or {_CURE}"
            )
    return path


def read_digest(path: Path) -> str:
    """SHA-256 of a kept file of ours. Raises CompilerFilesError if it is a link, or not ours alone to write to."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if path.is_symlink():
        raise CompilerFilesError(f"{path}: is a link, and what it leads to would be run: remove it")
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        status = os.fstat(file.fileno())
        if hasattr(os, "getuid"):
            _check_owner(path, status, ours=True)
            if status.st_mode & OTHERS_WRITE or not stat.S_ISREG(status.st_mode):
                raise CompilerFilesError(
                    f"{path}: other users may write to it, or it is no file, and it would be run: remove it"
                )
        return hashlib.file_digest(file, "sha256").hexdigest()


def _private(directory: Path) -> Path:
    """Made, with what is above it, for us alone."""
    directory = _without_links(directory)
    for place in [*reversed(directory.parents), directory]:
        if not place.exists():
            refuse_strangers(place.parent)
            place.mkdir(mode=0o700, exist_ok=True)
    return refuse_strangers(directory, ours=True)


def _without_links(path: Path) -> Path:
    """Raises CompilerFilesError if a link on the way is another user's."""
    path = Path(os.path.abspath(path))
    for _ in range(MOST_LINKS):
        link = next((place for place in [*reversed(path.parents), path] if place.is_symlink()), None)
        if link is None:
            return path
        _check_owner(link, link.lstat(), ours=False)
        path = Path(os.path.abspath(link.parent / os.readlink(link) / path.relative_to(link)))
    raise CompilerFilesError(f"{path}: links lead in a circle: {_CURE}")


def _check_owner(path: Path, status: os.stat_result, ours: bool) -> None:
    if hasattr(os, "getuid") and status.st_uid not in ({os.getuid()} if ours else {0, os.getuid()}):
        raise CompilerFilesError(
            f"{path}: belongs to another user (number {status.st_uid}), and what lies there is run: {_CURE}"
        )


def _check_content(directory: Path) -> None:
    """Of PyTorch's cache: no file may be another user's, a link, or, where others can reach it, open to their writing.

    PyTorch gives its files the rights that the umask leaves, which often lets the group write. That does no harm in
    a directory that nobody else can enter, as those are that we make.
    """
    entered = directory.stat().st_mode & OTHERS_ENTER
    for place, directories, files in os.walk(directory):
        for name in [*directories, *files]:
            path = Path(place, name)
            try:
                status = path.lstat()
            except FileNotFoundError:  # another process is compiling
                continue
            if stat.S_ISLNK(status.st_mode):
                raise CompilerFilesError(f"{path}: is a link, and what it leads to would be run: remove {directory}")
            _check_owner(path, status, ours=True)
            if entered and status.st_mode & OTHERS_WRITE:
                raise CompilerFilesError(
                    f"{path}: other users may write to it, and it would be run: remove {directory} with all it holds"
                )
