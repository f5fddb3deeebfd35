"""One update: forward and backward over its micro-batches, then the optimizer.

B sentences  T target positions  N real target tokens  D model width
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_mt.data.batching import Batch
from transformer_mt.data.packing import PackedBatch
from transformer_mt.device import ONEDNN_REFUSES, Device, do_without_onednn
from transformer_mt.errors import RankError
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.packed import Packed, Unpadded, unpadded
from transformer_mt.settings.experiment import TrainingConfig
from transformer_mt.training.averaging import MovingAverage
from transformer_mt.training.distributed import Ranks, is_sharded, whole
from transformer_mt.training.loss import LossSums, label_smoothed
from transformer_mt.training.r_drop import r_drop
from transformer_mt.vocabulary import PAD

OUT_OF_MEMORY_SHARDED = (
    "out of memory, and with training.sharding=full no rank can split its micro-batch by itself: lower "
    "training.tokens_per_batch, in a new run_dir; training.tokens_per_update keeps the update as it is"
)

Ids = Tensor | Packed | Unpadded
Features = Callable[[Ids, Ids], Tensor]


@dataclass(frozen=True)
class Update:
    """What one update saw on all ranks: sums over its target tokens, in nats."""

    smoothed: Tensor
    nll: Tensor
    num_labels: int
    num_positions: int
    """Target positions, padding included."""
    gradient_norm: Tensor
    is_finite: Tensor
    """Whether loss and gradient are; the weights have stayed as they were if not."""
    learning_rate: float
    step: int
    """From 1."""
    splits: Tensor
    """How often a micro-batch of any rank did not fit into memory and was made in two parts."""
    pairs: Tensor
    """int64, on the CPU: which pairs of the corpus this rank saw."""


class BatchLoss(nn.Module):
    """The loss of a batch's real target tokens under teacher forcing: the work of one micro-batch."""

    def __init__(self, model: Seq2Seq, settings: TrainingConfig, device: Device, compiled: bool = False) -> None:
        super().__init__()
        self.model, self.smoothing, self.r_drop, self.device = model, settings.label_smoothing, settings.r_drop, device
        self.compiled: Features | None = torch.compile(model.features, dynamic=False) if compiled else None

    def forward(self, batch: Batch | PackedBatch, compiled: bool = True) -> LossSums:
        batch = batch.to(self.device.torch_device)
        features = self.compiled if self.compiled and compiled else self.model.features
        features_ND, labels_N = real_features(self.model, features, batch, self.device)
        if not self.r_drop:
            return label_smoothed(features_ND, self.model.output_VD, labels_N, self.smoothing)
        second_ND, _ = real_features(self.model, features, batch, self.device)
        real_N = labels_N != PAD
        first_ND, second_ND, labels_N = features_ND[real_N], second_ND[real_N], labels_N[real_N]
        return r_drop(first_ND, second_ND, self.model.output_VD, labels_N, self.smoothing, self.r_drop)


def batch_loss(model: Seq2Seq, batch: Batch, smoothing: float, device: Device) -> LossSums:
    """The loss of one pass over a batch that is on the device."""
    features_ND, labels_N = real_features(model, model.features, batch, device)
    return label_smoothed(features_ND, model.output_VD, labels_N, smoothing)


def real_features(
    model: Seq2Seq, features: Features, batch: Batch | PackedBatch, device: Device
) -> tuple[Tensor, Tensor]:
    """What the decoder says of each target token, ND, and the token itself, N.

    Of padded rows without PAD. Packed ones keep the PAD of their dummies, and thereby their shape.
    """
    with device.autocast():
        if isinstance(batch, PackedBatch):
            source = Packed(batch.source_N, batch.source_offsets, batch.source_positions_N, batch.max_length)
            target = Packed(batch.decoder_input_N, batch.target_offsets, batch.target_positions_N, batch.max_length)
            return features(source, target).to(device.dtype), batch.labels_N
        real_BT = batch.decoder_input_BT != PAD
        if device.torch_device.type == "cpu" and model.takes_unpadded:
            features_ND = features(unpadded(batch.source_BS), unpadded(batch.decoder_input_BT))
        else:
            features_ND = features(batch.source_BS, batch.decoder_input_BT)[real_BT]
    return features_ND.to(device.dtype), batch.labels_BT[real_BT]


@dataclass(frozen=True)
class Learner:
    """All that an update moves."""

    loss: BatchLoss
    optimizer: Optimizer
    average: MovingAverage

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

    `batches` are this rank's; each rank has as many. Dropout is drawn anew for each micro-batch, from the seed,
    the step and its number: the same on any number of ranks that need not split one. If loss or gradient are not
    finite, no weight moves.
    """
    counts = torch.tensor([[batch.num_labels, batch.num_positions] for batch in batches]).sum(0)
    num_labels, num_positions = ranks.sum(counts).tolist()
    loss, optimizer = learner.loss, learner.optimizer
    sums, splits = _accumulate_gradients(loss, batches, num_labels, step, settings.seed, ranks)
    parameters = list(loss.parameters())
    ranks.sum_gradients(parameters)
    smoothed, nll, all_splits = ranks.sum(torch.stack([sums.smoothed, sums.nll, torch.full_like(sums.nll, splits)]))
    norm = nn.utils.get_total_norm([weight.grad for weight in parameters if weight.grad is not None])
    if settings.clip_norm:
        nn.utils.clip_grads_with_norm_(parameters, settings.clip_norm, norm)
    gradient_norm = whole(norm)
    is_finite = torch.isfinite(gradient_norm + smoothed)
    # The fused optimizer's own way to leave everything as it is, without the host having to wait for the answer.
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    learner.average.update(step)
    return Update(
        smoothed,
        nll,
        num_labels,
        num_positions,
        gradient_norm,
        is_finite,
        rate,
        step,
        all_splits,
        torch.cat([batch.pairs_B for batch in batches]),
    )


def _accumulate_gradients(
    loss: BatchLoss, batches: Sequence[Batch | PackedBatch], num_labels: int, step: int, seed: int, ranks: Ranks
) -> tuple[LossSums, int]:
    """Add up this rank's gradients; the sums of its losses, and how many micro-batches had to be split.

    What does not fit into memory is made in two parts. All is then made again, for a backward pass that broke
    off has left a part of its gradient.
    """
    waiting, splits = list(batches), 0
    while True:
        sums, failed = _backward_over(loss, waiting, num_labels, step, seed, ranks)
        if failed is None:
            if splits:
                loss.device.give_back()
            return sums, splits
        if is_sharded(loss):
            raise RankError(OUT_OF_MEMORY_SHARDED)
        if len(waiting[failed].pairs_B) < 2:
            raise RankError(_out_of_memory(waiting[failed]))
        loss.zero_grad(set_to_none=True)
        loss.device.give_back()
        waiting[failed : failed + 1] = waiting[failed].halves()
        splits += 1


def _backward_over(
    loss: BatchLoss, batches: Sequence[Batch | PackedBatch], num_labels: int, step: int, seed: int, ranks: Ranks
) -> tuple[LossSums, int | None]:
    """The sums of the losses, and which batch did not fit into memory."""
    # The optimizer of sharded parameters is given the mean over the ranks, and here the sum is wanted.
    scale = (ranks.size if is_sharded(loss) else 1) / num_labels
    device = loss.device.torch_device
    smoothed, nll = torch.zeros((), device=device), torch.zeros((), device=device)
    for index, batch in enumerate(batches):
        torch.manual_seed(_draw(seed, step, ranks.rank + index * ranks.size))
        try:
            sums = loss(batch)
            (sums.smoothed * scale).backward()
        except (RuntimeError, MemoryError) as error:  # OutOfMemoryError is one of the first
            if not is_out_of_memory(error):
                raise
            if ONEDNN_REFUSES in str(error):
                do_without_onednn()
            return LossSums(smoothed, nll), index
        smoothed += sums.smoothed.detach()
        nll += sums.nll
    return LossSums(smoothed, nll), None


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether a device or the host has no more to give; on the CPU PyTorch has no type for it, and oneDNN no word."""
    words = ("can't allocate memory", "bad_alloc", ONEDNN_REFUSES)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(word in str(error) for word in words)


def _draw(*numbers: int) -> int:
    """A seed of several numbers, unlike that of any others."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def _out_of_memory(batch: Batch | PackedBatch) -> str:
    return (
        f"out of memory with a single pair, of {batch.num_labels} target pieces: "
        "lower corpus.max_length (and prepare anew), model.d_model, model.ffn_dim or the number of layers, "
        "or take training.precision=bf16"
    )
