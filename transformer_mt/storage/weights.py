"""The weights of a model as a safetensors file."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from transformer_mt.errors import CheckpointError


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name; a tied one once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save_weights(weights: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file. Raises OSError or SafetensorError if there is no room for it."""
    with path.open("wb") as file:
        rights = os.fstat(file.fileno()).st_mode
    save_file({name: weight.contiguous() for name, weight in weights.items()}, path, metadata)
    path.chmod(rights)  # safetensors lets nobody but the owner read it, whatever the rights of other new files are


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name. Raises CheckpointError if it is missing or damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); average the run's checkpoints again") from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """Likewise, of a file that holds weights alone: fp32 numbers, all of them finite, or CheckpointError is raised."""
    weights = read_tensors(path)
    check_weights(weights, path)
    return weights


def check_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Raises CheckpointError, which names the file and the first of its tensors that holds anything but finite fp32."""
    for name, weight in weights.items():
        if weight.dtype != torch.float32:
            wrong = f"holds numbers of the type {str(weight.dtype).removeprefix('torch.')} instead of float32"
        elif weight.numel() and not all(bound.isfinite() for bound in torch.aminmax(weight)):
            number = int((~weight.isfinite()).sum())
            wrong = f"holds numbers that are infinite or not a number, {number:,} of {weight.numel():,}"
        else:
            continue
        raise CheckpointError(f"{path}: {name} {wrong}. Take another checkpoint, or copy the file again")


def read_metadata(path: Path) -> dict[str, str]:
    """What was written beside the tensors; nothing if there is no such file."""
    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError):
        return {}


def load_weights(model: nn.Module, path: Path, placed: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
    """Copy a file's weights into a model; `placed` puts a tensor where the weight is that it is for.

    Raises CheckpointError unless names and shapes are the model's.
    """
    found, wanted = read_weights(path), model_weights(model)
    for name in sorted(wanted.keys() | found.keys()):
        ours = tuple(wanted[name].shape) if name in wanted else "none"
        theirs = tuple(found[name].shape) if name in found else "none"
        if ours != theirs:
            raise CheckpointError(
                f"{path}: the shape of {name} is {theirs} there and {ours} in this model. "
                "Use the configuration that it was trained with: the config.yaml of its run"
            )
    for name, weight in wanted.items():
        weight.copy_(placed(found[name], weight) if placed else found[name])
