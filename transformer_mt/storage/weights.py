"""Reads and writes the weights of a model as a safetensors file."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from transformer_mt.errors import CheckpointError


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of a model by name. A tied parameter is there once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save_weights(weights: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file. Raises OSError or SafetensorError if there is no room for it."""
    with path.open("wb") as file:
        rights = os.fstat(file.fileno()).st_mode
    save_file({name: weight.contiguous() for name, weight in weights.items()}, path, metadata)
    path.chmod(rights)  # safetensors lets only the owner read it; give it the rights of other new files


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file, by name. Raises CheckpointError if it is missing or damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); average the run's checkpoints again") from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in a safetensors file, by name.

    Raises CheckpointError if it is missing or damaged, or if a number in it is not fp32 or not finite.
    """
    weights = read_tensors(path)
    check_weights(weights, path)
    return weights


def check_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Raises CheckpointError, naming the file and the tensor, unless all numbers are fp32 and finite."""
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
    """Return the metadata of a safetensors file; an empty dict if it cannot be read."""
    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError):
        return {}


def load_weights(model: nn.Module, path: Path, placed: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
    """Copy the weights in a file into a model.

    `placed(tensor, weight)`, if given, returns the tensor in the place and form of the model's weight, for example its
    shard on this device. Raises CheckpointError unless names and shapes are those of the model.
    """
    found, wanted = read_weights(path), model_weights(model)
    for name in sorted(wanted.keys() | found.keys()):
        ours = tuple(wanted[name].shape) if name in wanted else "none"
        theirs = tuple(found[name].shape) if name in found else "none"
        if ours != theirs:
            raise CheckpointError(
                f"{path}: the shape of {name} is {theirs} in this file and {ours} in the model. Use the configuration "
                "that it was trained with: the config.yaml of its run"
            )
    for name, weight in wanted.items():
        weight.copy_(placed(found[name], weight) if placed else found[name])
