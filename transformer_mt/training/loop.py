"""The training loop: update, validate, save."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from transformer_mt.batches.loader import Loader
from transformer_mt.batches.packing import MicroBatch
from transformer_mt.training.captured import captured_update
from transformer_mt.training.optimization import learning_rate
from transformer_mt.training.progress import Progress, is_due, is_trained, step_on_schedule
from transformer_mt.training.update import Update, fitted_update

if TYPE_CHECKING:
    from transformer_mt.training.learning import Learner
    from transformer_mt.training.run.running import Run
    from transformer_mt.training.run.validation import ValidationScores


def train(
    loader: Loader, validate: "Callable[[], ValidationScores]", progress: Progress, run: "Run"
) -> tuple[Progress, int]:
    """Update the model of the run, starting from `progress`, until training is complete or a signal asks to stop.

    Returns the progress in the newest checkpoint, and the number of the signal, or 0 if there was none.
    """
    learner, settings = run.learner, run.learner.settings
    learner.loss.train()
    with run:
        # a validation for which a signal left no time before the run was resumed
        if progress.validation_due:
            progress = run.after_validation(progress, validate())
            run.save(progress)

        for batches, position in () if is_trained(progress, settings) else run.batches(loader, progress):
            # one update: forward, backward, step
            step = progress.step + 1
            rate = learning_rate(step_on_schedule(progress, settings), settings)
            made = one_update(learner, batches, rate, step)
            progress = run.after_update(replace(progress, step=step, position=position), made)

            # validate after every `validate_every` updates
            if progress.validation_due and not run.signal:
                progress = run.after_validation(progress, validate())

            # save after every `save_every` updates, and after those with the best scores; `run.end` saves the last
            if run.signal or is_trained(progress, settings):
                break
            if is_due(settings.save_every, progress, settings) or step in progress.best_steps:
                run.save(progress)
        return run.end(progress), run.signal


def one_update(learner: "Learner", batches: Sequence[MicroBatch], rate: float, step: int) -> Update:
    """Make one update from these micro-batches, the same number on every rank. Splits those too large for memory."""
    counts = torch.tensor([[batch.num_labels, batch.num_positions] for batch in batches]).sum(0)
    num_labels, num_positions = learner.ranks.sum(counts).tolist()
    if learner.graphs is None:
        numbers = fitted_update(learner, batches, rate, step, num_labels)
    else:
        numbers = captured_update(learner, learner.graphs, batches, rate, step, num_labels)
    learner.average.update(step)
    pairs = torch.cat([batch.pairs_B for batch in batches])
    return Update(numbers, step, rate, num_labels, num_positions, learner.ranks.size * len(batches), pairs)
