"""The progress of a run, and which of its settings may change when it is resumed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from transformer_mt.batches.loader import BatchLayout, Position
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.optimization import depends_on_end


@dataclass(frozen=True)
class Progress:
    """The state of a run, except its tensors. Each checkpoint holds it."""

    step: int = 0
    position: Position = field(default_factory=Position)
    layout: BatchLayout = "padded"
    """The layout of sentences in a micro-batch, chosen when the run began."""
    tokens: int = 0
    """Real target tokens trained on."""
    seconds: float = 0.0
    """The time spent in updates."""
    elapsed: float = 0.0
    """The seconds of updates, validations and checkpoints; those of a checkpoint are in the next one."""
    longest_validation: float = 0.0
    """Its seconds."""
    skipped: int = 0
    """Updates that changed no weight, because their loss or gradient was not finite."""
    skipped_in_a_row: int = 0
    split: int = 0
    """Micro-batches that did not fit into memory and were split in two."""
    best: tuple[tuple[float, int], ...] = ()
    """Metric and step of the best validations, the best first."""
    validations_since_best: int = 0
    validated: Mapping[str, Any] = field(default_factory=dict)
    """The step and the scores of the newest validation (the fields of ValidationScores)."""
    validation_due: bool = False
    """Whether a validation of this update is still to come: a signal may leave less time than it takes."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """The section `model` of the configuration with which the run began."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Digests of training and validation data (preparing.prepared.data_digests); empty before the first start."""

    @property
    def best_steps(self) -> list[int]:
        return [step for _, step in self.best]


def is_trained(progress: Progress, settings: TrainingConfig) -> bool:
    """Whether training is over: no update or time is left, or the metric has not improved in `patience` validations."""
    is_over = is_at_end(progress, settings) or 0 < settings.patience <= progress.validations_since_best
    return is_over and not progress.validation_due


def is_at_end(progress: Progress, settings: TrainingConfig) -> bool:
    """Whether max_steps or max_minutes allows no further update."""
    return progress.step >= settings.max_steps or share_of_time(progress, settings) >= 1


def is_due(every: int, progress: Progress, settings: TrainingConfig) -> bool:
    """Whether something that happens every `every` updates happens after this one. After the last, everything does."""
    return progress.step % every == 0 or is_at_end(progress, settings)


def share_of_time(progress: Progress, settings: TrainingConfig) -> float:
    """The share of max_minutes that has passed: 1 when only a last validation still fits; 0 without a limit."""
    seconds = 60 * settings.max_minutes - progress.longest_validation
    return progress.elapsed / max(seconds, 1e-9) if settings.max_minutes else 0.0


def step_on_schedule(progress: Progress, settings: TrainingConfig) -> float:
    """The step whose rate the next update has: a later one than its own if max_minutes pass faster than max_steps."""
    by_time = share_of_time(progress, settings) * (settings.max_steps + 1) if depends_on_end(settings) else 0.0
    return max(progress.step + 1, by_time)


def expected_end(progress: Progress, settings: TrainingConfig) -> int:
    """The number of updates when training ends, as far as this progress tells."""
    share = min(1.0, share_of_time(progress, settings))
    return min(settings.max_steps, round(progress.step / share)) if share else settings.max_steps


def compare_with_best(progress: Progress, metric: float, settings: TrainingConfig) -> Progress:
    """Progress with a validation ranked among the best so far. Higher is better; of equal ones, the earlier is."""
    metric = -math.inf if math.isnan(metric) else metric
    is_better = not progress.best or metric > progress.best[0][0]
    ranking = sorted([*progress.best, (metric, progress.step)], key=lambda entry: (-entry[0], entry[1]))
    since = 0 if is_better else progress.validations_since_best + 1
    best = tuple(ranking[: settings.keep_best])
    return replace(progress, best=best, validations_since_best=since, validation_due=False)


# These would not have changed the updates so far. Directories and tokenizers may have been moved: `corpus`, the filters
# and the tokenizer's digest say what the data are.
FREE_TO_CHANGE = {
    *("data_dir", "run_dir", "filters.on_bad_line", "tokenizer.from", "tokenizer.extend_from"),
    *("training.device", "training.num_threads", "training.sharding", "training.compile", "training.tensorboard"),
    *("training.patience", "training.keep_best", "training.keep_last"),
    *("training.log_every", "training.save_every", "training.validate_every"),
}
FREE_SECTIONS = ("decoding.", "averaging.")
ENDS = ("training.max_steps", "training.max_minutes")  # free, too, unless the rates depend on the end


def may_change(key: str, settings: TrainingConfig) -> bool:
    """Whether a run may resume with another value of this key, such as training.max_steps."""
    if key in ENDS:
        return not depends_on_end(settings)
    return key in FREE_TO_CHANGE or key.startswith(FREE_SECTIONS)
