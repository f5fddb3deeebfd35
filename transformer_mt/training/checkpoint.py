"""Checkpoints: saved whole or not at all, verified, loaded without pickle, averaged."""

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from transformer_mt import __version__
from transformer_mt.config import TrainingConfig
from transformer_mt.data.batching import Position
from transformer_mt.errors import CheckpointError
from transformer_mt.weights import load_weights, model_weights, read_weights, save_weights

MODEL, TRAINING, STATE, SUMS = "model.safetensors", "training.safetensors", "state.json", "SHA256SUMS"


@dataclass(frozen=True)
class Progress:
    """What changes in a run besides tensors, saved whole."""

    step: int = 0
    position: Position = field(default_factory=Position)
    tokens: int = 0
    """Real target tokens trained on."""
    seconds: float = 0.0
    """Spent in updates."""
    best_step: int = 0
    best_metric: float | None = None
    validations_since_best: int = 0


def checkpoint_path(run_dir: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return run_dir / "checkpoints" / f"step-{step:08d}"


def saved_steps(run_dir: Path) -> list[int]:
    """The steps of all checkpoints there are, rising."""
    return sorted(int(path.name[5:]) for path in (run_dir / "checkpoints").glob("step-" + "[0-9]" * 8))


def save_checkpoint(
    run_dir: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, tokenizer_digest: str
) -> None:
    """Write beside and rename: at every instant the checkpoint is whole or not there.

    Raises CheckpointError if it cannot be written (a full disk); earlier checkpoints stay.
    """
    path = checkpoint_path(run_dir, progress.step)
    partial = path.with_name(path.name + ".partial")
    state = {"progress": asdict(progress), "tokenizer": tokenizer_digest, "versions": _versions()}
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_weights(model_weights(model), partial / MODEL)
        save_weights(_training_tensors(model, optimizer), partial / TRAINING)
        (partial / STATE).write_text(json.dumps(state, indent=2) + "\n")
        sums = "".join(f"{_sha256(partial / name)}  {name}\n" for name in (MODEL, TRAINING, STATE))
        (partial / SUMS).write_text(sums)
        for file in partial.iterdir():
            _flush_to_disk(file)
        shutil.rmtree(path, ignore_errors=True)
        os.replace(partial, path)
        _flush_to_disk(path.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(
            f"{path}: cannot be saved ({error}). The checkpoints before it are whole: "
            "make room on the disk and run the same command again"
        ) from None


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, tokenizer_digest: str) -> Progress:
    """Fill model, optimizer and random states from a verified checkpoint; the progress it was saved at.

    Raises CheckpointError if it was trained with another tokenizer or is of another shape.
    """
    try:
        state = json.loads((path / STATE).read_text())
        values = state["progress"]
        progress = Progress(**{**values, "position": Position(**values["position"])})
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(
            f"{path} was written by another version of this program; go on with that one, or choose another run_dir"
        ) from None
    check_tokenizer(path, tokenizer_digest)
    load_weights(model, path / MODEL)
    _load_training_tensors(model, optimizer, read_weights(path / TRAINING))
    return progress


def check_tokenizer(path: Path, tokenizer_digest: str) -> None:
    """Raises CheckpointError if the checkpoint was trained with another tokenizer."""
    found = json.loads((path / STATE).read_text()).get("tokenizer", "")
    if found != tokenizer_digest:
        raise CheckpointError(
            f"{path} was trained with another tokenizer ({found[:8]} instead of {tokenizer_digest[:8]}). "
            "Prepare the data as it was, or choose another run_dir"
        )


def damage(path: Path) -> str:
    """What is wrong with the files of a checkpoint; empty if each has the checksum it was saved with."""
    try:
        sums = [line.split("  ") for line in (path / SUMS).read_text().splitlines()]
        if sorted(name for _, name in sums) != sorted((MODEL, TRAINING, STATE)):
            return f"{SUMS} is incomplete"
        for digest, name in sums:
            if _sha256(path / name) != digest:
                return f"{name} is not what was saved"
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def newest_whole_checkpoint(run_dir: Path) -> tuple[Path | None, list[str]]:
    """The last undamaged checkpoint, and a line about each damaged one that is newer."""
    complaints: list[str] = []
    for step in reversed(saved_steps(run_dir)):
        path = checkpoint_path(run_dir, step)
        fault = damage(path)
        if not fault:
            return path, complaints
        complaints.append(f"{path} is damaged ({fault})")
    return None, complaints


def scheduled_steps(run_dir: Path, settings: TrainingConfig) -> list[int]:
    """The steps of the checkpoints that any run of these settings makes, rising: not those of an interruption."""
    every, last = settings.save_every, settings.max_steps
    return [step for step in saved_steps(run_dir) if step % every == 0 or step == last]


def prune(run_dir: Path, progress: Progress, settings: TrainingConfig) -> None:
    """Delete all up to now but the newest, the best, and the last few that were saved on schedule.

    Later ones are damaged, for the run has gone on from before them; it will write them anew.
    """
    scheduled = [step for step in scheduled_steps(run_dir, settings) if step <= progress.step]
    kept = {progress.step, progress.best_step, *scheduled[-settings.keep_last :]}
    for step in [step for step in saved_steps(run_dir) if step <= progress.step]:
        if step not in kept:
            shutil.rmtree(checkpoint_path(run_dir, step))


def point_best_at(run_dir: Path, step: int) -> None:
    """Let the link checkpoints/best name the checkpoint of a step."""
    partial = run_dir / "checkpoints" / "best.partial"
    partial.unlink(missing_ok=True)
    partial.symlink_to(checkpoint_path(run_dir, step).name)
    os.replace(partial, partial.with_name("best"))


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints, summed in fp64."""
    mean: dict[str, Tensor] = {}
    for path in paths:
        for name, weight in read_weights(path / MODEL).items():
            mean[name] = mean.get(name, torch.zeros((), dtype=torch.float64)) + weight.double() / len(paths)
    return {name: weight.float() for name, weight in mean.items()}


def _training_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {"random.cpu": torch.get_rng_state()}
    device = next(model.parameters()).device
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{key}.{name}"] = value
    return tensors


def _load_training_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for key, tensor in tensors.items():
        if key.startswith("optimizer."):
            _, name, parameter_name = key.split(".", 2)
            parameter = parameters[parameter_name]
            # A copy: the file's tensor is mapped, and the file may go.
            optimizer.state[parameter][name] = tensor.to(parameter.device, copy=True)
    torch.set_rng_state(tensors["random.cpu"])
    device = next(model.parameters()).device
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def _versions() -> dict[str, str]:
    return {"transformer_mt": __version__, "torch": torch.__version__, "python": platform.python_version()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
