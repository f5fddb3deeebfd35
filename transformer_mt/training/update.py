"""One update: forward and backward over its micro-batches, then the optimizer.

B sentences  T target positions  N real target tokens  D model width
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from transformer_mt.config import TrainingConfig
from transformer_mt.data.batching import Batch
from transformer_mt.device import Device
from transformer_mt.errors import TrainingError
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.layout import unpadded
from transformer_mt.training.loss import LossSums, label_smoothed
from transformer_mt.vocabulary import PAD


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
        sums = batch_loss(model, batch.to(device.torch_device), settings.label_smoothing, device)
        (sums.smoothed / num_labels).backward()  # type: ignore[no-untyped-call]
        smoothed += sums.smoothed.detach()
        nll += sums.nll
    gradient_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm or math.inf)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    num_positions = sum(batch.labels_BT.numel() for batch in batches)
    return Update(smoothed, nll, num_labels, num_positions, gradient_norm, optimizer.param_groups[0]["lr"])


def batch_loss(model: Seq2Seq, batch: Batch, smoothing: float, device: Device) -> LossSums:
    """The loss of a batch's real target tokens; PAD has none."""
    source_BS, decoder_input_BT = batch.source_BS, batch.decoder_input_BT
    real_BT = decoder_input_BT != PAD
    with device.autocast():
        if device.torch_device.type == "cpu" and model.takes_unpadded:
            features_ND = model.features(unpadded(source_BS), unpadded(decoder_input_BT))
        else:
            features_ND = model.features(source_BS, decoder_input_BT)[real_BT]
    return label_smoothed(features_ND.to(device.dtype), model.output_VD, batch.labels_BT[real_BT], smoothing)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """For the updates to come."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def refuse_what_is_not_finite(update: Update, step: int) -> None:
    """Raises TrainingError if the gradient has an infinity or a NaN, from which no weight recovers."""
    if not math.isfinite(update.gradient_norm.item()):
        raise TrainingError(
            f"the gradient of update {step} is not finite, so the weights are lost; the checkpoints before it are "
            "whole. Lower training.peak_lr, raise training.warmup_steps, or set training.clip_norm=1, in a new run_dir"
        )
