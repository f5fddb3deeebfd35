"""Keeps the code that PyTorch compiles in a directory that no other user can write to, because that code is run."""

import importlib
import os
import stat
import sys
import tempfile
from pathlib import Path

from transformer_mt.errors import ConfigError

TORCH, TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"  # variables of PyTorch and of its compiler for GPUs
_HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"  # kept in the temporary directory, wherever the rest is
_CURE = "let XDG_CACHE_HOME name a directory of yours; or, on a CPU, set training.compile=false"


def use_own_cache() -> None:
    """Make PyTorch keep what it compiles in `~/.cache/transformer_mt`, unless the user's environment names a place.

    Call it before anything is compiled, and before torch._inductor is imported. That import makes a directory, by
    default in the temporary directory, under a name that another user may have taken. Raises ConfigError if our
    directory cannot be made, or if other users can write to it or to a directory above it.
    """
    try:
        own = _private_directory()
        for variable, name in ((TORCH, "torch"), (TRITON, "triton")):
            named = Path(os.environ.get(variable, ""))
            # PyTorch itself sets its variable to this default, which the user did not choose.
            is_default = named.parent == Path(tempfile.gettempdir()) and named.name.startswith("torchinductor_")
            if named == Path() or is_default:
                (own / name).mkdir(mode=0o700, exist_ok=True)
                os.environ[variable] = str(own / name)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"there is no safe directory for compiled code ({error}): {_CURE}") from None
    os.environ[_HEADERS] = "0"
    if "torch._inductor.config" in sys.modules:  # it has read the variable already
        setattr(sys.modules["torch._inductor.config"], "cpp_cache_precompile_headers", False)  # noqa: B010


def make_no_cache() -> None:
    """Import PyTorch's compiler, as its optimizers do, without letting it make its directory. Nothing is compiled."""
    before = os.environ.get(TORCH)
    with tempfile.TemporaryDirectory() as empty:
        os.environ[TORCH] = empty
        try:
            importlib.import_module("torch._dynamo")
        finally:
            del os.environ[TORCH]
    if before is not None:
        os.environ[TORCH] = before


def _private_directory() -> Path:
    """Return this user's own directory for compiled code, without links on the way. Nobody else can enter it.

    It is made if it does not exist. Each directory above it must belong to this user or to root. Other users may write
    to one only if it is sticky, as /tmp is, because there nobody can rename what another user made.
    Raises ConfigError if that is not so, OSError and RuntimeError if there is no such directory.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    directory = ((named if named.is_absolute() else Path.home() / ".cache") / "transformer_mt").resolve()
    # Those above are checked first, so that nothing is made where others can write.
    for place in [*reversed(directory.parents), directory]:
        place.mkdir(mode=0o700, exist_ok=True)
        status, is_ours = place.stat(), place == directory
        is_sticky = bool(status.st_mode & stat.S_ISVTX) and not is_ours
        others_may_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky
        if others_may_write or status.st_uid not in ({os.getuid()} if is_ours else {0, os.getuid()}):
            raise ConfigError(
                f"{place}: belongs to another user, or others may write to it, and code from there would be run: "
                f"take the right from them (chmod go-w), or {_CURE}"
            )
    directory.chmod(0o700)
    return directory
