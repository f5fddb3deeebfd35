"""The models that can be made from the checkpoints of a run, and their scores on the validation set."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

import torch
from torch import Tensor

from transformer_mt.base.errors import CheckpointError
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import Device
from transformer_mt.marian import as_model_dir
from transformer_mt.settings.model_settings import ModelConfig
from transformer_mt.settings.training_settings import AveragingConfig, TrainingConfig, ValidationMetric
from transformer_mt.storage.checksums import MODEL, checkpoint_path, saved_steps
from transformer_mt.storage.weights import check_weights, copy_weights, read_tensors, read_weights
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.run import checkpoint
from transformer_mt.training.run.validation import ValidationScores, ValidationSet, validate_model

INITIAL_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
"""Shares of the weights from which training started, in the candidates after fine-tuning (Wortsman et al. 2022)."""

MOST_LOST = 1.0
"""BLEU that a fine-tuned model may lose on the further validation sets, compared with the one it started from."""

LISTED = 5  # a message lists at most this many updates; of more, it names only the first and the last


@dataclass(frozen=True)
class Candidate:
    """Weights that may become the model: the mean of some checkpoints, or the moving average in one of them.

    After fine-tuning, a candidate can also be a mean of these and of the weights from which training started.
    """

    run_dir: Path
    steps: tuple[int, ...]
    """The steps of its checkpoints, ascending."""
    of_updates: bool = False
    """The moving average of the weights over updates (training.average_decay), instead of a mean of checkpoints."""

    initial: Path | None = None
    """The model from which training started (training.initialise_from)."""
    initial_share: float = 0.0
    """The share of its weights: w = share * w_initial + (1 - share) * w_trained."""

    @property
    def paths(self) -> list[Path]:
        return [checkpoint_path(self.run_dir, step) for step in self.steps]

    def weights(self) -> dict[str, Tensor]:
        """The weights by name, in fp32."""
        trained = moving_average(self.paths[0]) if self.of_updates else average_weights(self.paths)
        if self.initial is None:
            return trained
        added = checkpoint.added_pieces(self.initial, Tokenizer.load(self.run_dir), "Set averaging.choose=last")
        initial = checkpoint.extended_weights(self.initial, added)
        return {name: torch.lerp(weight, initial[name], self.initial_share) for name, weight in trained.items()}

    def __str__(self) -> str:
        if self.initial is not None and self.initial_share == 1:
            return "the model from which training started"
        if self.initial is not None:
            return f"{replace(self, initial=None)}, mixed with {100 * self.initial_share:.0f} % of the initial weights"
        if self.of_updates:
            return f"the moving average at update {self.steps[0]}"
        if len(self.steps) == 1:
            return f"the checkpoint of update {self.steps[0]}"
        listed = ", ".join(map(str, self.steps))
        updates = listed if len(self.steps) <= LISTED else f"{self.steps[0]} to {self.steps[-1]}"
        return f"the mean of {len(self.steps)} checkpoints, updates {updates}"


def find_candidates(run_dir: Path, settings: AveragingConfig, training: TrainingConfig) -> list[Candidate]:
    """What may become the model: first what `choose` names, last the best checkpoint alone; without duplicates.

    Only checkpoints that were saved on schedule count as last ones. Others exist because the run was stopped, and the
    model must not depend on when that was. Raises CheckpointError if there is no checkpoint, or a damaged one.
    """
    steps = saved_steps(run_dir)
    if not steps:
        raise CheckpointError(f"{run_dir} holds no checkpoint; choose a run that has been trained, such as runs/<name>")
    newest = steps[-1]
    _check_undamaged(run_dir, [newest])
    progress = checkpoint.load_progress(checkpoint_path(run_dir, newest))
    best = [step for step in progress.best_steps if step in steps]
    last = (checkpoint.scheduled_steps(run_dir, progress, training) or [newest])[-settings.checkpoints :]
    moving = [Candidate(run_dir, (step,), of_updates=True) for step in dict.fromkeys([newest, *best[:1]])]
    match settings.choose:
        case "auto":
            found = _means_of_last(run_dir, last) + (moving if training.average_decay else [])
            found += _mixed_with_initial(found[-1 if training.average_decay else 0], training)
        case "last":
            found = [Candidate(run_dir, tuple(last))]
        case "best" if best:
            found = [Candidate(run_dir, tuple(sorted(best[: settings.checkpoints])))]
        case "best":
            path = checkpoint_path(run_dir, newest)
            raise CheckpointError(
                f"{path} names no best checkpoint, because there was no validation yet: continue training, or average "
                "with choose=last"
            )
        case "moving_average":
            found = moving[:1]
        case _:
            assert_never(settings.choose)
    found.append(Candidate(run_dir, tuple(best[:1] or [newest])))
    _check_undamaged(run_dir, sorted({step for candidate in found for step in candidate.steps} - {newest}))
    return list(dict.fromkeys(found))


def _mixed_with_initial(trained: Candidate, training: TrainingConfig) -> list[Candidate]:
    """Mixtures of the trained weights with those from which training started; none if it started from random ones."""
    initial = as_model_dir(Path(training.initialise_from)) if training.initialise_from else None
    if initial is None or not (initial / MODEL).is_file():
        return []
    return [replace(trained, initial=initial, initial_share=share) for share in INITIAL_SHARES]


def _means_of_last(run_dir: Path, last: list[int]) -> list[Candidate]:
    """The mean of all, of the newer half, and so on: early in training, a mean of fewer and newer ones is better."""
    found = []
    while len(last) > 1:
        found.append(Candidate(run_dir, tuple(last)))
        last = last[len(last) // 2 :]
    return [*found, Candidate(run_dir, tuple(last))]


def _check_undamaged(run_dir: Path, steps: Sequence[int]) -> None:
    for path in [checkpoint_path(run_dir, step) for step in steps]:
        if fault := checkpoint.damage(path):
            raise CheckpointError(f"{path} is damaged ({fault}); delete it and average again, or continue training")


def validate_candidates(
    candidates: Sequence[Candidate], model_settings: ModelConfig, validation: Sequence[ValidationSet], device: Device
) -> Iterator[ValidationScores]:
    """The scores of each candidate, one after another, computed as in training."""
    tokenizer = validation[0].tokenizer
    model = build_model(model_settings, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    model.to(device.torch_device).eval()
    for candidate in candidates:
        copy_weights(candidate.weights(), model, candidate.paths[0])
        yield validate_model(model, device, validation, Ranks())


def scores_of_training(candidate: Candidate, way: str) -> ValidationScores | None:
    """The scores that training gave these weights; None unless it validated just them, and in this way."""
    found = dict(checkpoint.load_progress(candidate.paths[0]).validated)
    if candidate.steps != (found.pop("step", None),) or candidate.initial is not None or found["way"] != way:
        return None
    others = {name: ValidationScores(**scores) for name, scores in found["others"].items()}
    return replace(ValidationScores(**found), others=others)


def best_of(
    scores: Sequence[ValidationScores], metric: ValidationMetric, initial: ValidationScores | None = None
) -> int:
    """The index of the best: by the metric, then by perplexity; of equal ones, the first.

    `initial` are the scores of the model from which training started. Then candidates that lose more than MOST_LOST on
    one of the further validation sets count only if all do.
    """

    def goodness(found: ValidationScores) -> tuple[bool, float, float]:
        before = {} if initial is None else initial.others
        keeps = all(found.others[name]["bleu"] >= each["bleu"] - MOST_LOST for name, each in before.items())
        return keeps, found.rank(metric), found.rank("nll")

    return max(range(len(scores)), key=lambda number: goodness(scores[number]))


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints, summed in fp64."""
    mean: dict[str, Tensor] = {}
    for path in paths:
        for name, weight in read_weights(path / MODEL).items():
            mean[name] = mean.get(name, torch.zeros((), dtype=torch.float64)) + weight.double() / len(paths)
    return {name: weight.float() for name, weight in mean.items()}


def moving_average(path: Path) -> dict[str, Tensor]:
    """The moving average of the weights that a checkpoint holds."""
    found = read_tensors(path / checkpoint.TRAINING)
    average = {key.removeprefix("average."): tensor for key, tensor in found.items() if key.startswith("average.")}
    check_weights(average, path / checkpoint.TRAINING)
    return average
