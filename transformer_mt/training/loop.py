"""Training, to be read downwards."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from transformer_mt.data.loader import Loader, split_evenly
from transformer_mt.settings.experiment import TrainingConfig
from transformer_mt.training.checkpoint import save
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.interrupt import finish_the_update_first
from transformer_mt.training.log import RunLog
from transformer_mt.training.optimization import learning_rate
from transformer_mt.training.progress import Progress
from transformer_mt.training.skipped_updates import SkippedUpdates
from transformer_mt.training.update import Learner, one_update
from transformer_mt.training.validation import ValidationScores, ValidationSet, validate


def train(
    learner: Learner,
    loader: Loader,
    validation: ValidationSet,
    settings: TrainingConfig,
    run_dir: Path,
    progress: Progress,
    ranks: Ranks,
    lines_of: Callable[[Tensor], list[int]],
) -> tuple[Progress, int]:
    """Update the model from `progress` on until it is trained or a signal asks to stop.

    `lines_of` gives the lines of some pairs in the training text. Returns the progress that the newest
    checkpoint holds, and the number of that signal or 0.
    """
    learner.loss.train()
    updates, digest = loader.updates(progress.position), validation.tokenizer.digest
    skipped_updates = SkippedUpdates(settings.max_bad_updates, lines_of, ranks)
    with finish_the_update_first(ranks) as stop_signal, RunLog(run_dir, settings, progress, ranks) as log:
        while not is_trained(progress, settings):
            began = time.perf_counter()
            step = progress.step + 1
            pairs, position = next(updates)
            numbered = ranks.share(list(enumerate(split_evenly(pairs, ranks.size))))
            batches = [loader.batch(part, step, number) for number, part in numbered]
            update = one_update(learner, batches, learning_rate(step, settings), step, settings, ranks)
            if step % settings.log_every == 0:
                learner.device.synchronize()
            seconds = progress.seconds + time.perf_counter() - began
            tokens = progress.tokens + update.num_labels
            progress = replace(progress, step=step, position=position, tokens=tokens, seconds=seconds)

            signum = stop_signal()
            to_validate = step % settings.validate_every == 0 or step == settings.max_steps
            to_save = step % settings.save_every == 0 or step == settings.max_steps or signum > 0
            to_read = to_validate or to_save or step % settings.log_every == 0
            progress = skipped_updates.counted(progress, update, now=to_read)
            log.update(progress, update)

            former = progress
            if to_validate and signum:  # which may leave less time than a validation takes
                progress = save(run_dir, learner, progress, digest, settings, ranks, False, former)
            if to_validate:
                scores = validate(learner, validation, settings, ranks)
                progress = compare_with_best(progress, scores, settings)
                log.validation(progress, scores)

            is_best, is_last = step in progress.best_steps, is_trained(progress, settings)
            if to_save or is_best or is_last:
                may_fail = not (is_last or signum)
                progress = save(run_dir, learner, progress, digest, settings, ranks, may_fail, former)
            if signum:
                return progress, signum
    return progress, 0


def compare_with_best(progress: Progress, scores: ValidationScores, settings: TrainingConfig) -> Progress:
    """Progress that knows how this validation compares with the best so far; of equals, the first stays better."""
    metric = {"bleu": scores.bleu, "chrf": scores.chrf, "nll": -scores.nll}[settings.metric]
    metric = -math.inf if math.isnan(metric) else metric
    is_better = not progress.best or metric > progress.best[0][0]
    ranking = sorted([*progress.best, (metric, progress.step)], key=lambda entry: (-entry[0], entry[1]))
    since = 0 if is_better else progress.validations_since_best + 1
    return replace(progress, best=tuple(ranking[: settings.keep_best]), validations_since_best=since)


def is_trained(progress: Progress, settings: TrainingConfig) -> bool:
    """Whether no update is left to do: all are done, or the metric has not got better for too long."""
    return progress.step >= settings.max_steps or 0 < settings.patience <= progress.validations_since_best
