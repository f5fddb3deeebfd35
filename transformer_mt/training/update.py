"""One update: forward and backward over its micro-batches, then a step of the optimizer."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from transformer_mt.batches.packing import MicroBatch
from transformer_mt.training.distributed import whole

if TYPE_CHECKING:
    from transformer_mt.training.learning import BatchLoss, Learner

AnyBatch = TypeVar("AnyBatch", bound=MicroBatch)


class Numbers(NamedTuple):
    """The results of an update, over all ranks. A GPU may still be computing them."""

    smoothed: Tensor
    """The loss, summed over target tokens, in nats."""
    nll: Tensor
    """The same without label smoothing."""
    num_batches: Tensor
    """The number of micro-batches."""
    gradient_norm: Tensor
    """The norm of the gradient before clipping."""
    is_finite: Tensor
    """Whether loss and gradient are finite; if not, the weights have not changed."""


@dataclass(frozen=True)
class Update:
    """An update, with what the host knows of it without waiting for a GPU. Counts are over all ranks."""

    numbers: Numbers
    step: int
    """From 1."""
    learning_rate: float
    num_labels: int
    """Real target tokens."""
    num_positions: int
    """Target positions, padding included."""
    num_batches: int
    """The number of micro-batches before any was split."""
    pairs: Tensor
    """int64, on the CPU: the numbers, in the corpus, of the pairs that this rank used."""

    @property
    def splits(self) -> int:
        """How often a micro-batch was split in two because it, or one as large, did not fit into memory."""
        return int(self.numbers.num_batches) - self.num_batches


def update(learner: "Learner", batches: Iterable[MicroBatch], num_labels: int | Tensor) -> Numbers:
    """Change the weights once, by the mean gradient over the `num_labels` real target tokens of all micro-batches.

    With several ranks, `batches` are the micro-batches of this rank only, and the gradients travel in
    training.message_precision. A GPU's work on a micro-batch, and its step, may be captured (training/captured.py).
    """
    sums = torch.zeros(3, device=learner.device.torch_device)
    for batch in batches:
        sums += add_gradient(learner.loss, batch, num_labels)
    learner.ranks.sum_gradients(learner.loss.parameters(), learner.settings.message_precision)
    return change_weights(learner, learner.ranks.sum(sums))


def add_gradient(loss: "BatchLoss", batch: MicroBatch, num_labels: int | Tensor) -> Tensor:
    """Forward and backward for one micro-batch. Returns the sums of the smoothed loss and of the nll, and a 1.

    Only in fp16, the scaler does something: it scales the loss, as small gradients would become 0 (Micikevicius et al.
    2018).
    """
    smoothed, nll = loss(batch)
    loss.scaler.scale(smoothed / num_labels).backward()
    return torch.stack([smoothed.detach(), nll, torch.ones_like(nll)])


def change_weights(learner: "Learner", sums_3: Tensor) -> Numbers:
    """A step of the optimizer by the gradients of all micro-batches and ranks, whose losses have these sums."""
    optimizer, scaler, (smoothed, nll, num_batches) = learner.optimizer, learner.loss.scaler, sums_3
    scaler.unscale_(optimizer)

    # clip the gradient; with a clip_norm of 0, only measure it
    norm = whole(nn.utils.clip_grad_norm_(learner.loss.parameters(), learner.settings.clip_norm or math.inf))

    # one step: the fused optimizer changes nothing if `found_inf` is 1, so the host need not wait for this number
    is_finite = torch.isfinite(norm + smoothed)
    optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]
    optimizer.step()
    scaler.update()  # halves the scale if the gradient is not finite
    optimizer.zero_grad(set_to_none=True)
    return Numbers(smoothed, nll, num_batches, norm, is_finite)


def fitted_update(
    learner: "Learner", batches: Sequence[MicroBatch], rate: float | Tensor, step: int, num_labels: int | Tensor
) -> Numbers:
    """An update at this learning rate. A micro-batch that does not fit into the memory is split."""
    for group in learner.optimizer.param_groups:
        group["lr"] = rate

    return learner.room.fit(
        batches, lambda parts: update(learner, seeded(learner, parts, step), num_labels), learner.loss, learner.device
    )


def seeded(learner: "Learner", batches: Iterable[AnyBatch], step: int) -> Iterator[AnyBatch]:
    """The micro-batches. Before each, the seed of dropout is set, from that of the run, the step and its number."""
    for number, batch in enumerate(batches):
        set_seed(seed_of(learner.settings.seed, step, learner.ranks.rank + number * learner.ranks.size))
        yield batch


def set_seed(number: int) -> None:
    """Do what `torch.manual_seed` does, without its half of a millisecond for kinds of devices that are not there."""
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(number)


def seed_of(*numbers: int) -> int:
    """A seed made from several numbers; different numbers make different seeds."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
