"""Captures updates of packed batches as CUDA graphs: the host copies a batch, and starts all kernels by one call.

An update of a small model is hundreds of kernels of some microseconds each, and the host needs more time to launch them
one by one than a GPU needs to run them. A graph reads and writes the memory with which it was captured. So all that
differs between updates, which is the batch, the learning rate and the number of labels, is copied to fixed places. A
graph draws other random numbers after each `set_seed`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from transformer_mt.batches.packing import MicroBatch, PackedBatch
from transformer_mt.training.graphs import Graphs
from transformer_mt.training.update import Numbers, add_gradient, change_weights, fitted_update, seeded, update

if TYPE_CHECKING:
    from transformer_mt.training.learning import Learner

STEP = "step"


def captured_update(
    learner: "Learner", graphs: Graphs, batches: Sequence[MicroBatch], rate: float, step: int, num_labels: int
) -> Numbers:
    """Equals `fitted_update`, which makes the first update with batches of a shape. Then the update is captured.

    An update of a single micro-batch on a single rank is one graph. Otherwise each micro-batch is a graph that adds to
    the gradients, and the step is another one: between them, the gradients of all ranks are added up.
    """
    is_whole = len(batches) == 1 and learner.ranks.size == 1
    rate_1, labels_1 = graphs.hold(rate, num_labels)
    packed = [batch for batch in batches if isinstance(batch, PackedBatch)]  # all of them
    if all((batch.shape, is_whole) in graphs for batch in packed):
        smoothed, nll, num_batches, norm, is_finite = _replayed(learner, graphs, packed, step, is_whole).clone()
        return Numbers(smoothed, nll, num_batches, norm, is_finite > 0)
    numbers = fitted_update(learner, batches, rate_1, step, labels_1)
    if graphs.is_possible and len(learner.room.parts(batches)) == len(batches):  # no part was too large for the memory
        group = learner.optimizer.param_groups[0]
        try:
            group["capturable"] = True  # PyTorch's Adam lets itself be captured; its fused form computes the same
            (_capture_whole if is_whole else _capture_parts)(learner, graphs, packed, labels_1)
        except (RuntimeError, MemoryError) as error:
            graphs.give_up(str(error) or type(error).__name__)  # a MemoryError says nothing
        finally:
            group["capturable"] = False
    return numbers


def _replayed(learner: "Learner", graphs: Graphs, batches: Sequence[PackedBatch], step: int, is_whole: bool) -> Tensor:
    """The Numbers of an update, which the next replay overwrites."""
    ranks = learner.ranks
    if is_whole:
        (results_5,) = [graphs.replay((batch.shape, True), batch) for batch in seeded(learner, batches, step)]
        return results_5
    with graphs.gradients() as gradients:
        for batch in seeded(learner, batches, step):
            graphs.replay((batch.shape, False), batch)
        ranks.sum_gradients(graphs.parameters, learner.settings.message_precision)
        torch._foreach_copy_(gradients, [each.grad for each in graphs.parameters if each.grad is not None])
        ranks.sum(graphs.sums_3)
        return graphs.replay(STEP)


def _capture_whole(learner: "Learner", graphs: Graphs, batches: Sequence[PackedBatch], labels_1: Tensor) -> None:
    graphs.capture((batches[0].shape, True), batches[0], lambda batch: _stacked(update(learner, [batch], labels_1)))


def _capture_parts(learner: "Learner", graphs: Graphs, batches: Sequence[PackedBatch], labels_1: Tensor) -> None:
    def part(batch: PackedBatch) -> Tensor:
        return graphs.sums_3.add_(add_gradient(learner.loss, batch, labels_1))

    def step(_: PackedBatch) -> Tensor:
        results_5 = _stacked(change_weights(learner, graphs.sums_3))
        torch._foreach_zero_([*gradients, graphs.sums_3])  # for the next update
        return results_5

    with graphs.gradients() as gradients:
        for batch in batches:
            if (batch.shape, False) not in graphs:
                graphs.capture((batch.shape, False), batch, part)
        if STEP not in graphs:
            graphs.capture(STEP, batches[0], step)


def _stacked(numbers: Numbers) -> Tensor:
    return torch.stack([number.float() for number in numbers])
