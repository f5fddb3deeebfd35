"""Checkpoints: saved completely or not at all, verified, loaded without pickle."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from tqdm import tqdm

from transformer_mt.base.errors import CheckpointError, UserError
from transformer_mt.base.system import flush_to_disk, link_directory
from transformer_mt.batches.loader import Position
from transformer_mt.marian import as_model_dir
from transformer_mt.settings.model_settings import ModelConfig
from transformer_mt.settings.reading import other_meaning_than
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.storage.checksums import CONFIG, MODEL, check_model, checkpoint_path, fault, saved_steps, write_sums
from transformer_mt.storage.files import cure, read_json
from transformer_mt.storage.records import versions
from transformer_mt.storage.weights import (
    check_shapes,
    copy_weights,
    model_weights,
    read_metadata,
    read_tensors,
    read_weights,
    save_weights,
)
from transformer_mt.text.existing_tokenizer import old_parts
from transformer_mt.text.tokenizer import Tokenizer, holds_tokenizer
from transformer_mt.training.distributed import Ranks, sharded_like, whole
from transformer_mt.training.learning import Learner
from transformer_mt.training.progress import Progress, is_at_end

TRAINING, STATE = "training.safetensors", "state.json"
FILES = (MODEL, TRAINING, STATE)


@dataclass(frozen=True)
class Tensors:
    """The tensors of a checkpoint, all shards together."""

    model: dict[str, Tensor]
    training: dict[str, Tensor]

    @classmethod
    def of(cls, learner: Learner) -> "Tensors":
        """Gather the tensors on the first rank. Every rank must call this; the other ranks get no tensors."""
        training = {
            f"optimizer.{key}.{name}": value
            for name, parameter in learner.model.named_parameters()
            for key, value in learner.optimizer.state[parameter].items()
        }
        training |= {f"average.{name}": average for name, average in learner.average.averages.items()}
        training |= {f"scaler.{key}": torch.tensor(value) for key, value in learner.loss.scaler.state_dict().items()}
        return cls(_gathered(model_weights(learner.model), learner.ranks), _gathered(training, learner.ranks))


def save_checkpoint(run_dir: Path, tensors: Tensors, progress: Progress, tokenizer_digest: str) -> None:
    """Write a directory under another name, then rename it, so that a checkpoint is always complete.

    Raises CheckpointError if it cannot be written (a full disk); earlier checkpoints stay.
    """
    path = checkpoint_path(run_dir, progress.step)
    partial = path.with_name(path.name + ".partial")
    state = {"progress": asdict(progress), "tokenizer": tokenizer_digest, "versions": versions(["torch"])}
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_weights(tensors.model, partial / MODEL)
        save_weights(tensors.training, partial / TRAINING)
        (partial / STATE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        write_sums(partial, FILES)
        _put_in_place(partial)
    except (OSError, SafetensorError, UserError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        earlier = "Earlier checkpoints are complete" if saved_steps(run_dir) else "There is no earlier checkpoint"
        raise CheckpointError(
            f"{path}: cannot be saved ({error}). {earlier}: {cure(error)} and run the same command again"
        ) from None


def _put_in_place(partial: Path) -> None:
    """Give a complete checkpoint its name. One of the same step goes aside before, and is deleted at the next save."""
    for file in partial.iterdir():
        flush_to_disk(file)
    path = partial.with_suffix("")
    if path.exists():
        _set_aside(path)
    os.replace(partial, path)
    flush_to_disk(path.parent)


def finish_saving(run_dir: Path) -> None:
    """Give a checkpoint its name that was complete already when `train` was killed. One of its step may be aside."""
    for found in (run_dir / "checkpoints").glob("step-*.partial"):
        if not damage(found):
            _put_in_place(found)


def load_progress(path: Path) -> Progress:
    """The progress in a verified checkpoint. Raises CheckpointError if another version wrote it."""
    try:
        values = read_json(path / STATE)["progress"]
        best = tuple((metric, step) for metric, step in values["best"])
        return Progress(**{**values, "position": Position(**values["position"]), "best": best})
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); every rank needs the run_dir") from None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(
            f"{path} was written by another version of this program; resume it with that one, or set another run_dir"
        ) from None


def load_checkpoint(path: Path, learner: Learner, tokenizer_digest: str) -> None:
    """Load the tensors of `Tensors.of` from a verified checkpoint; each rank loads its shard.

    Raises UserError on every rank if a rank cannot read it, or if it has another tokenizer or other shapes.
    """
    with learner.ranks.together():
        check_tokenizer(path, tokenizer_digest, "Prepare the data as before, or choose another run_dir")
        weights, training = read_weights(path / MODEL), read_tensors(path / TRAINING)
        check_shapes(weights, learner.model, path / MODEL)
    for name, weight in model_weights(learner.model).items():
        weight.copy_(sharded_like(weights[name], weight))
    parameters = dict(learner.model.named_parameters())
    for key, tensor in training.items():
        if key.startswith("optimizer."):
            _, state, name = key.split(".", 2)
            learner.optimizer.state[parameters[name]][state] = sharded_like(tensor, parameters[name])
        elif (name := key.removeprefix("average.")) in learner.average.averages:
            learner.average.averages[name].copy_(sharded_like(tensor, parameters[name]))
    if scaler := {key.removeprefix("scaler."): t.item() for key, t in training.items() if key.startswith("scaler.")}:
        learner.loss.scaler.load_state_dict(scaler)


def initialise_from(path: Path, model: nn.Module, settings: ModelConfig, tokenizer: Tokenizer) -> None:
    """Load the weights of another run; `settings` are the model's. Raises CheckpointError if they do not fit.

    If the tokenizer is that of the run with more pieces, each new one gets the mean of the embeddings of its parts.
    """
    path = as_model_dir(path)
    is_checkpoint = (path / STATE).is_file()
    if is_checkpoint and (found := damage(path)):
        raise CheckpointError(f"training.initialise_from={path} is damaged ({found}); choose another checkpoint")
    if not is_checkpoint and (path / MODEL).is_file():
        check_model(path)
    if tokenizer_of(path) is None:
        inside = [path / name for name in ("model", "checkpoints/best") if (path / name / MODEL).is_file()]
        raise CheckpointError(
            f"training.initialise_from={path} is neither a model directory (like runs/<name>/model) nor a checkpoint "
            "(like runs/<name>/checkpoints/best)" + (f"; set it to {inside[0]}" if inside else "")
        )
    advice = (
        "Its weights would belong to other pieces. For training.initialise_from, prepare the data with its tokenizer "
        "(or, to add pieces, with the same path as tokenizer.extend_from), "
        f"into another data_dir: tokenizer.from={_holder_of_tokenizer(path)}"
    )
    added = added_pieces(path, tokenizer, advice)
    check_settings(path, settings, "Set the values that it was trained with, or leave training.initialise_from out")
    copy_weights(extended_weights(path, added), model, path / MODEL)


Parts = list[list[int]]
"""For each piece that was added to a vocabulary, the ids of the former pieces that it consists of."""


def added_pieces(path: Path, tokenizer: Tokenizer, advice: str) -> tuple[Parts, Parts]:
    """Return the pieces of source and target that this tokenizer has more than that of a checkpoint or model.

    Raises CheckpointError, with this advice, if the tokenizer is neither the same nor an extended one.
    """
    if tokenizer_of(path) != tokenizer.digest and holds_tokenizer(holder := _holder_of_tokenizer(path)):
        old = Tokenizer.load(holder)
        if old.digest == tokenizer_of(path) and (parts := old_parts(tokenizer, old)) is not None:
            return parts
    check_tokenizer(path, tokenizer.digest, advice)
    return [], []


def _holder_of_tokenizer(path: Path) -> Path:
    """The directory with the tokenizer of a checkpoint or model."""
    return path.absolute().parent.parent if (path / STATE).is_file() else path


def extended_weights(path: Path, added: tuple[Parts, Parts]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint or model. Each added piece gets the mean of the rows of its parts."""
    weights, (source, target) = read_weights(path / MODEL), added
    rows = {"source_embedding.weight": source, "target_embedding.weight": target}
    rows |= {"output_embedding.weight": target, "output_bias_V": target}
    for name in [name for name, parts in rows.items() if parts and name in weights]:
        means = [weights[name][ids].mean(0) for ids in rows[name]]
        weights[name] = torch.cat([weights[name], torch.stack(means)])
    return weights


def check_tokenizer(path: Path, tokenizer_digest: str, advice: str) -> None:
    """Raises CheckpointError, with this advice, if a checkpoint or a model was trained with another tokenizer."""
    found = tokenizer_of(path) or "unknown"
    if found != tokenizer_digest:
        raise CheckpointError(
            f"{path} was trained with another tokenizer ({found[:8]} instead of {tokenizer_digest[:8]}). {advice}"
        )


def check_settings(path: Path, model: ModelConfig, advice: str) -> None:
    """Raises CheckpointError, with this advice, if weights of a checkpoint or model directory mean another model."""
    if other := other_meaning_than(load_progress(path).model if (path / STATE).is_file() else path / CONFIG, model):
        changes = "\n  ".join(other)
        raise CheckpointError(f"{path}: its weights would mean something else in this model:\n  {changes}\n{advice}")


def tokenizer_of(path: Path) -> str | None:
    """The digest of the tokenizer of a checkpoint or model directory; None if `path` is neither."""
    if (path / STATE).is_file():
        return str(read_json(path / STATE).get("tokenizer", ""))
    return read_metadata(path / MODEL).get("tokenizer")


def damage(path: Path) -> str:
    """What is wrong with the files of a checkpoint; empty if each has the checksum it was saved with."""
    if found := fault(path, FILES):
        return str(found)
    return next((f"{name} is missing" for name in FILES if not (path / name).exists()), "")


def newest_whole_checkpoint(run_dir: Path) -> tuple[Path | None, list[str]]:
    """The last undamaged checkpoint, and a line about each damaged one that is newer."""
    complaints: list[str] = []
    for step in reversed(saved_steps(run_dir)):
        path = checkpoint_path(run_dir, step)
        if not (fault := damage(path)):
            return path, complaints
        complaints.append(f"{path} is damaged ({fault})")
    return None, complaints


def scheduled_steps(run_dir: Path, newest: Progress, settings: TrainingConfig) -> list[int]:
    """The steps of the checkpoints that were saved on schedule, ascending; without those of an interruption."""
    last = newest.step if is_at_end(newest, settings) else settings.max_steps
    steps = [step for step in saved_steps(run_dir) if step <= newest.step]
    return [step for step in steps if step % settings.save_every == 0 or step == last]


def prune(run_dir: Path, progress: Progress, settings: TrainingConfig) -> None:
    """Delete checkpoints, except the newest, the best, and the last few that were saved on schedule.

    Later ones stay: they are damaged, because the run has resumed from an earlier one, and it will replace them.
    """
    kept = {progress.step, *progress.best_steps, *scheduled_steps(run_dir, progress, settings)[-settings.keep_last :]}
    for step in saved_steps(run_dir):
        if step <= progress.step and step not in kept:
            _set_aside(checkpoint_path(run_dir, step))
    for old in (run_dir / "checkpoints").glob("step-*.old"):
        shutil.rmtree(old, ignore_errors=True)  # the next call deletes what is still in use


def _set_aside(path: Path) -> None:
    """Rename a checkpoint that will be deleted, because half of it must not look complete."""
    shutil.rmtree(old := path.with_suffix(".old"), ignore_errors=True)
    os.replace(path, old)


def point_best_at(run_dir: Path, step: int) -> None:
    """Point the link checkpoints/best, which is only for people, at the checkpoint of a step."""
    link, checkpoint = run_dir / "checkpoints" / "best", checkpoint_path(run_dir, step)
    try:
        link_directory(link, checkpoint)
    except OSError as error:  # for example, a bucket that is mounted as a directory has no links
        words = f"warning: {link}: cannot be made ({error.strerror}). The best checkpoint is {checkpoint}"
        tqdm.write(words, file=sys.stderr)


def _gathered(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """Gather one tensor after the other. Sharded ones go to the CPU, because they may not all fit on one device."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        together = whole(tensor)
        if ranks.is_first:
            found[name] = together if together is tensor else together.cpu()
    return found
