"""The training loop: update, validate, save."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from transformer_mt.data.batching import Pairs
from transformer_mt.data.encoded import Place
from transformer_mt.data.loader import Loader, Position, split_evenly
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.in_flight import InFlight, lead_on
from transformer_mt.training.interrupt import finish_the_update_first
from transformer_mt.training.log import RunLog
from transformer_mt.training.optimization import learning_rate
from transformer_mt.training.progress import Progress, is_trained, with_counts
from transformer_mt.training.saving import Saver, writes_beside
from transformer_mt.training.skipped_updates import MOST_IN_A_ROW, SkippedUpdates
from transformer_mt.training.update import Learner, one_update
from transformer_mt.training.validation import ValidationSet, compare_with_best, validate


def train(
    learner: Learner,
    loader: Loader,
    validation: ValidationSet,
    settings: TrainingConfig,
    run_dir: Path,
    progress: Progress,
    ranks: Ranks,
    places_of: Callable[[Pairs], list[Place]],
) -> tuple[Progress, int]:
    """Update the model from `progress` on until it is trained or a signal asks to stop.

    `places_of` gives the files and lines of pairs. Returns the progress that the newest checkpoint
    holds, and the number of the signal, or 0.
    """
    learner.loss.train()
    updates = loader.updates(progress.position)
    updates = chain([next(updates)], updates)  # the first order of the data is made here: Ctrl-C stops that at once
    in_flight = InFlight(lead_on(learner.device))
    skipped_updates = SkippedUpdates(MOST_IN_A_ROW, places_of, ranks)
    beside = writes_beside(learner.device)
    with (
        finish_the_update_first(ranks) as stop_signal,
        Saver(run_dir, validation.tokenizer.digest, settings, ranks, beside) as saver,
        RunLog(run_dir, settings, progress, ranks, learner.device.torch_device) as log,
    ):
        while not is_trained(progress, settings):
            # one update: forward, backward, step
            progress = _next_update(learner, loader, updates, progress, settings, ranks, in_flight)
            step = progress.step

            # what is due after this update
            signum = stop_signal()
            to_validate = _is_due(settings.validate_every, step, settings)
            to_save = _is_due(settings.save_every, step, settings) or signum > 0

            # the log, and the checkpoint that was written meanwhile
            for then, arrived in in_flight.read(progress, all_of_them=to_validate or to_save):
                progress = skipped_updates.count(progress, arrived)
                log.update(with_counts(then, progress), arrived)
            saver.settle(wait=to_validate or to_save)

            # validation; save first if a signal may leave less time than validation takes
            if to_validate and signum:
                saver.save(learner, progress, beside=False)
            if to_validate:
                scores = validate(learner, validation, settings, ranks)
                progress = compare_with_best(progress, scores, settings)
                log.validation(progress, scores)

            # the checkpoint, also of the best and of the last update
            is_best, is_last = step in progress.best_steps, is_trained(progress, settings)
            if to_save or is_best or is_last:
                saver.save(learner, progress, beside=not (is_last or signum))
            if signum:
                return progress, signum
    return progress, 0


def _next_update(
    learner: Learner,
    loader: Loader,
    updates: Iterator[tuple[list[Pairs], Position]],
    progress: Progress,
    settings: TrainingConfig,
    ranks: Ranks,
    in_flight: InFlight,
) -> Progress:
    """Make the next update, on this rank's share of its micro-batches; the progress counts its tokens and seconds."""
    began, step = time.perf_counter(), progress.step + 1
    pairs, position = next(updates)
    numbered = ranks.share(list(enumerate(split_evenly(pairs, ranks.size))))
    batches = [loader.batch(part, step, number) for number, part in numbered]
    update = one_update(learner, batches, learning_rate(step, settings), step, settings, ranks)
    is_due = _is_due(settings.validate_every, step, settings) or _is_due(settings.save_every, step, settings)
    in_flight.send(update, wait_for_all=is_due)  # the seconds of a GPU are thus counted here
    seconds = progress.seconds + time.perf_counter() - began
    return replace(progress, step=step, position=position, tokens=progress.tokens + update.num_labels, seconds=seconds)


def _is_due(every: int, step: int, settings: TrainingConfig) -> bool:
    return step % every == 0 or step == settings.max_steps
