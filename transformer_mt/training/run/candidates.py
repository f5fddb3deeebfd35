"""The models that can be made of the checkpoints of a run, and how good each is on the validation set."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from torch import Tensor

from transformer_mt.base.errors import CheckpointError
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import Device
from transformer_mt.settings.model_settings import ModelConfig
from transformer_mt.settings.training_settings import AveragingConfig, TrainingConfig, ValidationMetric
from transformer_mt.storage.checksums import checkpoint_path, saved_steps
from transformer_mt.storage.weights import model_weights
from transformer_mt.training.run.checkpoint import (
    average_weights,
    damage,
    load_progress,
    moving_average,
    scheduled_steps,
)
from transformer_mt.training.run.validation import ValidationScores, ValidationSet, validate_model
from transformer_mt.training.scale.distributed import Ranks

LISTED = 5  # updates in a sentence; of more, the first and the last


@dataclass(frozen=True)
class Candidate:
    """Weights that may become the model: the mean of some checkpoints, or the moving average that one holds."""

    run_dir: Path
    steps: tuple[int, ...]
    """Of its checkpoints, rising."""
    of_updates: bool = False
    """The moving average of the weights over updates (training.average_decay), instead of a mean of checkpoints."""

    @property
    def paths(self) -> list[Path]:
        return [checkpoint_path(self.run_dir, step) for step in self.steps]

    def weights(self) -> dict[str, Tensor]:
        """By name, fp32."""
        return moving_average(self.paths[0]) if self.of_updates else average_weights(self.paths)

    def __str__(self) -> str:
        if self.of_updates:
            return f"the moving average at update {self.steps[0]}"
        if len(self.steps) == 1:
            return f"the checkpoint of update {self.steps[0]}"
        listed = ", ".join(map(str, self.steps))
        updates = listed if len(self.steps) <= LISTED else f"{self.steps[0]} to {self.steps[-1]}"
        return f"the mean of {len(self.steps)} checkpoints, updates {updates}"


def find_candidates(run_dir: Path, settings: AveragingConfig, training: TrainingConfig) -> list[Candidate]:
    """What can become the model: first what `choose` names, last only the best checkpoint; none of them twice.

    The last checkpoints are the newest that were saved on schedule: others are there because a run was stopped, and
    would make its model depend on when that was. Raises CheckpointError if there is no checkpoint, or a damaged one.
    """
    steps = saved_steps(run_dir)
    if not steps:
        raise CheckpointError(f"{run_dir} holds no checkpoint; name a run that has been trained, such as runs/<name>")
    newest = steps[-1]
    _check_whole(run_dir, [newest])
    best = [step for step in load_progress(checkpoint_path(run_dir, newest)).best_steps if step in steps]
    last = (scheduled_steps(run_dir, training) or [newest])[-settings.checkpoints :]
    moving = [Candidate(run_dir, (step,), of_updates=True) for step in dict.fromkeys([newest, *best[:1]])]
    match settings.choose:
        case "auto":
            found = _means_of_last(run_dir, last) + (moving if training.average_decay else [])
        case "last":
            found = [Candidate(run_dir, tuple(last))]
        case "best" if best:
            found = [Candidate(run_dir, tuple(sorted(best[: settings.checkpoints])))]
        case "best":
            path = checkpoint_path(run_dir, newest)
            raise CheckpointError(
                f"{path} knows no best checkpoint, because there was no validation yet: train on, or average with "
                "choose=last"
            )
        case "moving_average":
            found = moving[:1]
        case _:
            assert_never(settings.choose)
    found.append(Candidate(run_dir, tuple(best[:1] or [newest])))
    _check_whole(run_dir, sorted({step for candidate in found for step in candidate.steps} - {newest}))
    return list(dict.fromkeys(found))


def _means_of_last(run_dir: Path, last: list[int]) -> list[Candidate]:
    """The mean of all, of half as many, and so on: early in training, the fewer and newer ones are the better ones."""
    found = []
    while len(last) > 1:
        found.append(Candidate(run_dir, tuple(last)))
        last = last[len(last) // 2 :]
    return [*found, Candidate(run_dir, tuple(last))]


def _check_whole(run_dir: Path, steps: Sequence[int]) -> None:
    for path in [checkpoint_path(run_dir, step) for step in steps]:
        if fault := damage(path):
            raise CheckpointError(f"{path} is damaged ({fault}); delete it and average again, or train on")


def validate_candidates(
    candidates: Sequence[Candidate],
    model_settings: ModelConfig,
    validation: ValidationSet,
    device: Device,
) -> Iterator[ValidationScores]:
    """The scores of each, one after another, as training finds them."""
    tokenizer = validation.tokenizer
    model = build_model(model_settings, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    model.to(device.torch_device).eval()
    for candidate in candidates:
        weights = candidate.weights()
        for name, weight in model_weights(model).items():
            weight.copy_(weights[name])
        yield validate_model(model, device, validation, Ranks())


def best_of(scores: Sequence[ValidationScores], metric: ValidationMetric) -> int:
    """The index of the best: by the metric, then by perplexity; of equals the first."""
    return max(range(len(scores)), key=lambda number: (scores[number].rank(metric), scores[number].rank("nll")))
