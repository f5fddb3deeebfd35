"""One update: forward and backward over its micro-batches, then the optimizer.

B sentences  T target positions  N real target tokens  D model width
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_mt.data.batching import Batch
from transformer_mt.data.packing import PackedBatch
from transformer_mt.device import Device
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.packed import Packed
from transformer_mt.settings.experiment import TrainingConfig
from transformer_mt.training.averaging import MovingAverage
from transformer_mt.training.common_shapes import Features, compiled_for_common_shapes
from transformer_mt.training.distributed import Ranks, is_sharded, whole
from transformer_mt.training.loss import LossSums, label_smoothed
from transformer_mt.training.out_of_memory import Room, sum_over
from transformer_mt.training.r_drop import r_drop
from transformer_mt.vocabulary import PAD


@dataclass(frozen=True)
class Update:
    """The results of one update, over all ranks; its losses are sums over target tokens, in nats."""

    smoothed: Tensor
    nll: Tensor
    num_labels: int
    num_positions: int
    """Target positions, padding included."""
    gradient_norm: Tensor
    is_finite: Tensor
    """Whether loss and gradient are finite; if not, the weights have not moved."""
    learning_rate: float
    step: int
    """From 1."""
    splits: Tensor
    """How often a micro-batch of any rank was split in two because it, or one as large, did not fit into memory."""
    pairs: Tensor
    """int64, on the CPU: the numbers of the corpus's pairs that this rank saw."""


class BatchLoss(nn.Module):
    """The loss of a micro-batch: of its real target tokens, each predicted from those before it (teacher forcing)."""

    def __init__(self, model: Seq2Seq, settings: TrainingConfig, device: Device, compiled: bool = False) -> None:
        super().__init__()
        self.model, self.smoothing, self.r_drop, self.device = model, settings.label_smoothing, settings.r_drop, device
        self.compiled: Features | None = compiled_for_common_shapes(model.features, device) if compiled else None

    def forward(self, batch: Batch | PackedBatch, compiled: bool = True) -> LossSums:
        batch = batch.to(self.device.torch_device)
        features = self.compiled if self.compiled and compiled else self.model.features
        features_ND, labels_N = features_and_labels(self.model, features, batch, self.device)
        if not self.r_drop:
            return _label_smoothed(self.model, features_ND, labels_N, self.smoothing)
        second_ND, _ = features_and_labels(self.model, features, batch, self.device)
        first_ND, second_ND, labels_N = (x[labels_N != PAD] for x in (features_ND, second_ND, labels_N))
        output_VD, bias_V = self.model.output_VD, self.model.output_bias_V
        return r_drop(first_ND, second_ND, output_VD, labels_N, self.smoothing, self.r_drop, bias_V)


def batch_loss(model: Seq2Seq, batch: Batch, smoothing: float, device: Device) -> LossSums:
    """The loss of one pass over a batch that is on the device already."""
    features_ND, labels_N = features_and_labels(model, model.features, batch, device)
    return _label_smoothed(model, features_ND, labels_N, smoothing)


def _label_smoothed(model: Seq2Seq, features_ND: Tensor, labels_N: Tensor, smoothing: float) -> LossSums:
    loss = model.faster(label_smoothed)
    return LossSums(*loss(features_ND, model.output_VD, labels_N, smoothing, model.output_bias_V))


def real_features(model: Seq2Seq, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
    """The decoder's features of each real target token, ND."""
    return model.features(source_BS, decoder_input_BT)[decoder_input_BT != PAD]


def features_and_labels(
    model: Seq2Seq, features: Features, batch: Batch | PackedBatch, device: Device
) -> tuple[Tensor, Tensor]:
    """The decoder's features of each target token, ND, and the token itself as its label, N.

    The PAD of padded rows is left out. Packed batches keep the PAD of their dummies, so that their shape stays.
    """
    with device.autocast():
        if isinstance(batch, PackedBatch):
            source = Packed(batch.source_N, batch.source_offsets, batch.source_positions_N, batch.max_length)
            target = Packed(batch.decoder_input_N, batch.target_offsets, batch.target_positions_N, batch.max_length)
            return features(source, target).to(device.dtype), batch.labels_N
        features_ND = model.faster(real_features)(model, batch.source_BS, batch.decoder_input_BT)
    return features_ND.to(device.dtype), batch.labels_BT[batch.decoder_input_BT != PAD]


@dataclass(frozen=True)
class Learner:
    """All that an update changes: the model inside its loss, the optimizer, the moving average, what did not fit."""

    loss: BatchLoss
    optimizer: Optimizer
    average: MovingAverage
    room: Room = field(default_factory=Room)

    @property
    def model(self) -> Seq2Seq:
        return self.loss.model

    @property
    def device(self) -> Device:
        return self.loss.device


def one_update(
    learner: Learner,
    batches: Sequence[Batch | PackedBatch],
    rate: float,
    step: int,
    settings: TrainingConfig,
    ranks: Ranks,
) -> Update:
    """Move the weights once, by the mean gradient over all real target tokens of all ranks' micro-batches.

    `batches` are this rank's; every rank has as many. If loss or gradient are not finite, no weight moves.
    """
    counts = torch.tensor([[batch.num_labels, batch.num_positions] for batch in batches]).sum(0)
    num_labels, num_positions = ranks.sum(counts).tolist()

    # forward and backward, micro-batch by micro-batch, then the sum over the ranks
    backward = partial(_backward, learner.loss, num_labels, step, settings.seed, ranks)
    sums, splits = sum_over(batches, backward, learner.loss, learner.device, learner.room)
    parameters = list(learner.loss.parameters())
    ranks.sum_gradients(parameters)
    smoothed, nll, all_splits = ranks.sum(torch.stack([sums.smoothed, sums.nll, torch.full_like(sums.nll, splits)]))

    # clip the gradient
    norm = nn.utils.get_total_norm([weight.grad for weight in parameters if weight.grad is not None])
    if settings.clip_norm:
        nn.utils.clip_grads_with_norm_(parameters, settings.clip_norm, norm)
    gradient_norm = whole(norm)
    is_finite = torch.isfinite(gradient_norm + smoothed)

    # one step of the optimizer
    _step(learner.optimizer, rate, is_finite)
    learner.average.update(step)
    pairs = torch.cat([batch.pairs_B for batch in batches])
    return Update(smoothed, nll, num_labels, num_positions, gradient_norm, is_finite, rate, step, all_splits, pairs)


def _backward(
    loss: BatchLoss, num_labels: int, step: int, seed: int, ranks: Ranks, batch: Batch | PackedBatch, number: int
) -> LossSums:
    """Add the gradient of one micro-batch to that of the update, whose ranks have `num_labels` target tokens in all.

    Dropout is drawn anew for each micro-batch, from the seed, the step and its number among those of all ranks: it
    is the same on any number of ranks, as long as none has to split a micro-batch.
    """
    torch.manual_seed(_draw(seed, step, ranks.rank + number * ranks.size))
    sums: LossSums = loss(batch)
    # The optimizer of sharded parameters is given the mean over the ranks, and here the sum is wanted.
    scale = (ranks.size if is_sharded(loss) else 1) / num_labels
    (sums.smoothed * scale).backward()  # type: ignore[no-untyped-call]
    return sums


def _step(optimizer: Optimizer, rate: float, is_finite: Tensor) -> None:
    """Move the weights at this learning rate, unless `is_finite` is false, and forget the gradients."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    # The fused optimizer then changes nothing, and the host need not wait to learn which it was.
    optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _draw(*numbers: int) -> int:
    """A seed made of several numbers; other numbers make another seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
