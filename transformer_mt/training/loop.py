"""Training, to be read downwards.

B sentences  T target positions  N real target tokens  D model width
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from transformer_mt.config import TrainingConfig
from transformer_mt.data.batching import Batch, training_batches
from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.device import Device
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.training.checkpoint import Progress, point_best_at, prune, save_checkpoint
from transformer_mt.training.interrupt import finish_the_update_first
from transformer_mt.training.log import RunLog
from transformer_mt.training.loss import label_smoothed
from transformer_mt.training.optimization import learning_rate
from transformer_mt.training.validation import ValidationScores, ValidationSet, validate
from transformer_mt.vocabulary import PAD


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

            is_best, is_last = progress.best_step == step, is_trained(progress, settings)
            if step % settings.save_every == 0 or is_best or is_last or stop_signal():
                save_checkpoint(run_dir, model, optimizer, progress, validation.tokenizer.digest)
                if is_best:
                    point_best_at(run_dir, step)
                prune(run_dir, settings.keep_last, settings.save_every, progress.best_step)
            if stop_signal():
                break
        return progress, stop_signal()


@dataclass(frozen=True)
class Update:
    """What one update saw: sums over its target tokens, in nats."""

    smoothed: Tensor
    nll: Tensor
    num_labels: int
    num_positions: int
    """Target positions, padding included."""
    gradient_norm: Tensor
    learning_rate: float


def one_update(
    model: Seq2Seq, optimizer: Optimizer, batches: Sequence[Batch], settings: TrainingConfig, device: Device
) -> Update:
    """Move the weights once, by the mean gradient over all real target tokens of all micro-batches."""
    num_labels = sum(batch.num_labels for batch in batches)
    smoothed = torch.zeros((), device=device.torch_device)
    nll = torch.zeros((), device=device.torch_device)
    for batch in batches:
        batch = batch.to(device.torch_device)
        with device.autocast():
            features_BTD = model.features(batch.source_BS, batch.decoder_input_BT)
        real_BT = batch.labels_BT != PAD
        features_ND = features_BTD[real_BT].to(device.dtype)
        sums = label_smoothed(features_ND, model.output_VD, batch.labels_BT[real_BT], settings.label_smoothing)
        (sums.smoothed / num_labels).backward()
        smoothed += sums.smoothed.detach()
        nll += sums.nll
    limit = settings.clip_norm or float("inf")
    gradient_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    num_positions = sum(batch.labels_BT.numel() for batch in batches)
    return Update(smoothed, nll, num_labels, num_positions, gradient_norm, optimizer.param_groups[0]["lr"])


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def compare_with_best(progress: Progress, scores: ValidationScores, settings: TrainingConfig) -> Progress:
    """Progress that knows whether this validation is the best so far; of equals, the first stays it."""
    metric = scores.bleu if settings.metric == "bleu" else -scores.nll
    if progress.best_metric is None or metric > progress.best_metric:
        return replace(progress, best_step=progress.step, best_metric=metric, validations_since_best=0)
    since_best = progress.validations_since_best + 1
    stopped_early = 0 < settings.patience <= since_best
    return replace(progress, validations_since_best=since_best, stopped_early=stopped_early)


def is_trained(progress: Progress, settings: TrainingConfig) -> bool:
    """Whether no update is left to do."""
    return progress.step >= settings.max_steps or progress.stopped_early
