"""Training, to be read downwards."""

import math
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

from torch.optim import Optimizer

from transformer_mt.config import TrainingConfig
from transformer_mt.data.batching import training_batches
from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.device import Device
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.training.checkpoint import Progress, point_best_at, prune, save_checkpoint
from transformer_mt.training.interrupt import finish_the_update_first
from transformer_mt.training.log import RunLog
from transformer_mt.training.optimization import learning_rate
from transformer_mt.training.update import one_update, refuse_what_is_not_finite, set_learning_rate
from transformer_mt.training.validation import ValidationScores, ValidationSet, validate


def train(
    model: Seq2Seq,
    optimizer: Optimizer,
    corpus: EncodedCorpus,
    validation: ValidationSet,
    settings: TrainingConfig,
    run_dir: Path,
    device: Device,
    progress: Progress,
) -> tuple[Progress, int]:
    """Update the model from `progress` on until it is trained or a signal asks to stop.

    Returns the progress that the newest checkpoint holds, and the number of that signal or 0.
    """
    model.train()
    batches = training_batches(corpus, settings.tokens_per_batch, settings.seed, progress.position)
    with finish_the_update_first() as stop_signal, RunLog(run_dir, settings, progress) as log:
        while not is_trained(progress, settings):
            began = time.perf_counter()
            step = progress.step + 1
            taken = list(islice(batches, settings.micro_batches_per_update))
            set_learning_rate(optimizer, learning_rate(step, settings))
            update = one_update(model, optimizer, [batch for batch, _ in taken], settings, device)
            if step % settings.log_every == 0:
                device.synchronize()
            progress = replace(
                progress,
                step=step,
                position=taken[-1][1],
                tokens=progress.tokens + update.num_labels,
                seconds=progress.seconds + time.perf_counter() - began,
            )
            log.update(progress, update)

            if step % settings.validate_every == 0 or step == settings.max_steps:
                scores = validate(model, validation, settings, device)
                progress = compare_with_best(progress, scores, settings)
                log.validation(progress, scores)

            signum = stop_signal()
            is_best, is_last = progress.best_step == step, is_trained(progress, settings)
            if step % settings.save_every == 0 or is_best or is_last or signum:
                refuse_what_is_not_finite(update, step)
                save_checkpoint(run_dir, model, optimizer, progress, validation.tokenizer.digest)
                if is_best:
                    point_best_at(run_dir, step)
                prune(run_dir, progress, settings)
            if signum:
                return progress, signum
    return progress, 0


def compare_with_best(progress: Progress, scores: ValidationScores, settings: TrainingConfig) -> Progress:
    """Progress that knows whether this validation is the best so far; of equals, the first stays it."""
    metric = scores.bleu if settings.metric == "bleu" else -scores.nll
    metric = -math.inf if math.isnan(metric) else metric
    if progress.best_metric is None or metric > progress.best_metric:
        return replace(progress, best_step=progress.step, best_metric=metric, validations_since_best=0)
    return replace(progress, validations_since_best=progress.validations_since_best + 1)


def is_trained(progress: Progress, settings: TrainingConfig) -> bool:
    """Whether no update is left to do: all are done, or the metric has not got better for too long."""
    return progress.step >= settings.max_steps or 0 < settings.patience <= progress.validations_since_best
