"""One update: forward and backward over its micro-batches, then a step of the optimizer."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from transformer_mt.batches.packing import MicroBatch
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.distributed import Ranks, whole

if TYPE_CHECKING:
    from transformer_mt.training.learning import Learner


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


def update(
    learner: "Learner",
    batches: Iterable[MicroBatch],
    step: int,
    num_labels: int,
    settings: TrainingConfig,
    ranks: Ranks,
) -> Numbers:
    """Change the weights once, by the mean gradient over the `num_labels` real target tokens of all micro-batches.

    The loss of the learner returns the LossSums of a micro-batch. The seed of dropout comes from that of the run, from
    `step` and from the number of the micro-batch. With several ranks, `batches` are the micro-batches of this rank
    only, and the gradients travel in training.message_precision. Only in fp16, the scaler does something: it scales
    the loss, as small gradients would become 0 (Micikevicius et al. 2018).
    """
    loss, optimizer, scaler = learner.loss, learner.optimizer, learner.loss.scaler
    parameters = list(loss.parameters())
    sums = torch.zeros(3, device=parameters[0].device)

    # forward and backward, micro-batch by micro-batch
    for number, batch in enumerate(batches):
        torch.manual_seed(seed_of(settings.seed, step, ranks.rank + number * ranks.size))
        smoothed, nll = loss(batch)
        scaler.scale(smoothed / num_labels).backward()
        sums += torch.stack([smoothed.detach(), nll, torch.ones_like(nll)])

    # the sum over the ranks
    ranks.sum_gradients(parameters, settings.message_precision)
    scaler.unscale_(optimizer)
    smoothed, nll, num_batches = ranks.sum(sums)

    # clip the gradient; with a clip_norm of 0, only measure it
    norm = whole(nn.utils.clip_grad_norm_(parameters, settings.clip_norm or math.inf))

    # one step: the fused optimizer changes nothing if `found_inf` is 1, so the host need not wait for this number
    is_finite = torch.isfinite(norm + smoothed)
    optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]
    optimizer.step()
    scaler.update()  # halves the scale if the gradient is not finite
    optimizer.zero_grad(set_to_none=True)
    return Numbers(smoothed, nll, num_batches, norm, is_finite)


def seed_of(*numbers: int) -> int:
    """A seed made from several numbers; different numbers make different seeds."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
