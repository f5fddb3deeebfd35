"""Reads and writes weights as safetensors, and sets the directory in which PyTorch keeps compiled code."""

import json
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from transformer_mt.base.errors import CheckpointError, ConfigError
from transformer_mt.base.system import may_others_write, user_id


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of a model by name. A tied parameter appears once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save_weights(weights: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file, whose bytes depend only on its content. Raises OSError or SafetensorError."""
    with path.open("wb") as file:
        rights = os.fstat(file.fileno()).st_mode
    save_file({name: weight.contiguous() for name, weight in weights.items()}, path, metadata)
    path.chmod(rights)  # safetensors makes it readable only by the owner; give it the rights of other new files
    with path.open("r+b") as file:  # safetensors writes the metadata in a random order
        header = json.loads(file.read(length := int.from_bytes(file.read(8), "little")))
        file.seek(8)
        file.write(json.dumps(header, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode().ljust(length))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file, by name. Raises CheckpointError if it is missing or damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); copy the file again, or make it readable") from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in a safetensors file, by name.

    Raises CheckpointError if the file is missing or damaged, or if a number in it is not fp32 or not finite.
    """
    weights = read_tensors(path)
    check_weights(weights, path)
    return weights


def check_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Raises CheckpointError, which names the file and the tensor, unless all numbers are fp32 and finite."""
    for name, weight in weights.items():
        if weight.dtype != torch.float32:
            wrong = f"has numbers of the type {str(weight.dtype).removeprefix('torch.')} instead of float32"
        elif weight.numel() and not all(bound.isfinite() for bound in torch.aminmax(weight)):
            number = int((~weight.isfinite()).sum())
            wrong = f"has {number:,} of {weight.numel():,} numbers that are infinite or not a number"
        else:
            continue
        raise CheckpointError(f"{path}: {name} {wrong}. Take another checkpoint, or copy the file again")


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file; an empty dict if it cannot be read."""
    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError):
        return {}


def copy_weights(weights: Mapping[str, Tensor], model: nn.Module, path: Path) -> None:
    """Copy weights, which are from a file or checkpoint `path`, into a model. Raises the error of `check_shapes`."""
    check_shapes(weights, model, path)
    for name, weight in model_weights(model).items():
        weight.copy_(weights[name])


def check_shapes(weights: Mapping[str, Tensor], model: nn.Module, path: Path) -> None:
    """Raises CheckpointError, which names the file, unless names and shapes are those of the model."""
    wanted = model_weights(model)
    for name in sorted(wanted.keys() | weights.keys()):
        ours = tuple(wanted[name].shape) if name in wanted else "none"
        theirs = tuple(weights[name].shape) if name in weights else "none"
        if ours != theirs:
            raise CheckpointError(
                f"{path}: the shape of {name} is {theirs} in this file, but {ours} in the model. Use the configuration "
                "with which it was trained: the config.yaml of its run"
            )


TORCH, TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"  # variables of PyTorch and of its compiler for GPUs
_HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"  # PyTorch always keeps these in the temporary directory
_CURE = "set XDG_CACHE_HOME to a directory that only you can write to; or, on a CPU, set training.compile=false"


def use_own_cache() -> None:
    """Make PyTorch keep compiled code in `~/.cache/transformer_mt`, unless environment variables name another place.

    Call it before importing torch._inductor, which makes a directory, by default under a name in the temporary
    directory that another user may have used first. Raises ConfigError if there is no safe directory.
    """
    try:
        own = private_cache()
        for variable, name in ((TORCH, "torch"), (TRITON, "triton")):
            named = Path(os.environ.get(variable, ""))
            # PyTorch sets the variable to this default itself, so the user did not choose it.
            is_default = named.parent == Path(tempfile.gettempdir()) and named.name.startswith("torchinductor_")
            if named == Path() or is_default:
                (own / name).mkdir(mode=0o700, exist_ok=True)
                os.environ[variable] = str(own / name)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"there is no safe directory for compiled code ({error}): {_CURE}") from None
    os.environ[_HEADERS] = "0"
    if "torch._inductor.config" in sys.modules:  # this module has already read the variable
        setattr(sys.modules["torch._inductor.config"], "cpp_cache_precompile_headers", False)  # noqa: B010


def private_cache() -> Path:
    """Return a directory for compiled code and converted models that only this user can enter, as a path without links.

    It is made if it does not exist. Each directory above it must belong to this user or to root, and be writable by
    others only if it is sticky like /tmp. Otherwise raises ConfigError; OSError and RuntimeError if it cannot be made.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    directory = ((named if named.is_absolute() else Path.home() / ".cache") / "transformer_mt").resolve()
    # Begin at the top, so that nothing is made in a directory that others can write to.
    for place in [*reversed(directory.parents), directory]:
        place.mkdir(mode=0o700, exist_ok=True)
        status, is_ours = place.stat(), place == directory
        is_sticky = bool(status.st_mode & stat.S_ISVTX) and not is_ours
        is_open = may_others_write(status) and not is_sticky
        if is_open or status.st_uid not in ({user_id()} if is_ours else {0, user_id()}):
            raise ConfigError(
                f"{place}: belongs to another user, or others can write to it, but this program would run code from "
                f"there. Forbid others to write to it (chmod go-w), or {_CURE}"
            )
    directory.chmod(0o700)
    return directory
