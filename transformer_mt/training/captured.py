"""Captures updates of packed batches as CUDA graphs: the host copies a batch, and starts all kernels by one call.

An update of a small model is hundreds of kernels of some microseconds each, and the host needs more time to launch them
one by one than a GPU needs to run them. A graph reads and writes the memory with which it was captured. So all that
differs between updates, which is the batch, the learning rate and the number of labels, is copied to fixed places. A
graph draws other random numbers after each `set_seed`.
"""

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from tqdm import tqdm

from transformer_mt.batches.packing import MicroBatch, PackedBatch
from transformer_mt.training.learning import Learner
from transformer_mt.training.update import Numbers, add_gradient, change_weights, fitted_update, seeded, update

Work = Callable[[], Tensor]
Capture = Callable[[Work], Work]
"""Records what a GPU has to do for some work, without doing it. Returns a function that does it again and again."""
STEP = "step"


class Graphs:
    """The captured work of a learner. `capturing` makes a new Capture at first, and when all graphs were dropped."""

    def __init__(self, parameters: Sequence[nn.Parameter], capturing: Callable[[], Capture]) -> None:
        self.parameters, self._capturing, self.is_possible = parameters, capturing, True
        self._rate_and_labels_2, self.sums_3 = (torch.zeros(size, device=parameters[0].device) for size in (2, 3))
        self._gradients = list[Tensor]()
        self._captured, self._capture = dict[Hashable, tuple[Tensor, Work]](), capturing()

    def drop(self) -> bool:
        """Forget all graphs, so that their memory is free. Returns whether there were any."""
        had_any = bool(self._captured)
        self._captured, self._capture = {}, self._capturing()
        return had_any

    def give_up(self, reason: str) -> None:
        """Drop all graphs and make no more."""
        self.is_possible = False
        self.drop()
        tqdm.write(
            "warning: updates cannot be captured as CUDA graphs, so the host starts each kernel alone, which is slower "
            f"for small models: {reason.splitlines()[0]}",
            file=sys.stderr,
        )

    def __contains__(self, key: Hashable) -> bool:
        return key in self._captured

    def hold(self, rate: float, num_labels: int) -> tuple[Tensor, Tensor]:
        """Both numbers, at their fixed places."""
        _copy([torch.tensor([rate, num_labels])], self._rate_and_labels_2)
        rate_1, labels_1 = self._rate_and_labels_2.unbind()
        return rate_1, labels_1

    @contextmanager
    def gradients(self) -> Iterator[list[Tensor]]:
        """Inside this context, the parameters have gradients at fixed places. They are 0 before each update."""
        self._gradients = self._gradients or [torch.zeros_like(each) for each in self.parameters]
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            parameter.grad = gradient
        try:
            yield self._gradients
        finally:
            for parameter in self.parameters:
                parameter.grad = None

    def capture(self, key: Hashable, like: PackedBatch, work: Callable[[PackedBatch], Tensor]) -> None:
        """Capture work on batches that have the shape of `like`."""
        parts = _even(_parts(like))
        ids = torch.empty(sum(map(len, parts)), dtype=torch.int64, device=self.sums_3.device)
        self._captured[key] = ids, self._capture(lambda: work(_batch_of(ids, like)))

    def replay(self, key: Hashable, batch: PackedBatch | None = None) -> Tensor:
        """Do this work again, on this batch. The next replay overwrites the result."""
        ids, work = self._captured[key]
        if batch is not None:
            _copy(_even(_parts(batch)), ids)
        return work()


def _copy(parts: Sequence[Tensor], to: Tensor) -> None:
    """Copy parts together from the CPU to a fixed place, after the queued work of a GPU; the host does not wait."""
    together = torch.cat(list(parts), out=torch.empty(to.shape, dtype=to.dtype, pin_memory=to.is_cuda))
    to.copy_(together, non_blocking=True)


def _parts(batch: PackedBatch) -> dict[str, Tensor]:
    """The fields of a batch that a GPU reads."""
    return {name: part for name, part in vars(batch).items() if isinstance(part, Tensor) and name != "pairs_B"}


def _even(parts: dict[str, Tensor]) -> list[Tensor]:
    """The parts, each of an even length: kernels are compiled anew for what begins at an odd place."""
    return [F.pad(part, (0, len(part) % 2)) if len(part) % 2 else part for part in parts.values()]


def _batch_of(ids: Tensor, like: PackedBatch) -> PackedBatch:
    """The batch with these fields, in the types and shapes of another batch."""
    own = _parts(like)
    found = torch.split(ids, [len(part) for part in _even(own)])
    named = zip(own.items(), found, strict=True)
    fields: dict[str, Any] = {name: ids[: len(part)].to(part.dtype) for (name, part), ids in named}
    return replace(like, **fields)


@dataclass(frozen=True, kw_only=True)
class CapturedLearner(Learner):
    """A learner whose updates are captured."""

    graphs: Graphs


def captured_update(
    learner: CapturedLearner, batches: Sequence[MicroBatch], rate: float, step: int, num_labels: int
) -> Numbers:
    """Equals `fitted_update`, which makes the first update with batches of a shape. Then the update is captured.

    An update of a single micro-batch on a single rank is one graph. Otherwise each micro-batch is a graph that adds to
    the gradients, and the step is another one: between them, the gradients of all ranks are added up.
    """
    graphs, is_whole = learner.graphs, len(batches) == 1 and learner.ranks.size == 1
    rate_1, labels_1 = graphs.hold(rate, num_labels)
    packed = [batch for batch in batches if isinstance(batch, PackedBatch)]  # all of them
    if all((batch.shape, is_whole) in graphs for batch in packed):
        smoothed, nll, num_batches, norm, is_finite = _replayed(learner, packed, step, is_whole).clone()
        return Numbers(smoothed, nll, num_batches, norm, is_finite > 0)
    numbers = fitted_update(learner, batches, rate_1, step, labels_1)
    if graphs.is_possible and len(learner.room.parts(batches)) == len(batches):  # no part was too large for the memory
        try:
            with _capturable(learner.optimizer):
                (_capture_whole if is_whole else _capture_parts)(learner, packed, labels_1)
        except (RuntimeError, MemoryError) as error:
            graphs.give_up(str(error))
    return numbers


def _replayed(learner: CapturedLearner, batches: Sequence[PackedBatch], step: int, is_whole: bool) -> Tensor:
    """The Numbers of an update, which the next replay overwrites."""
    graphs, ranks = learner.graphs, learner.ranks
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


def _capture_whole(learner: CapturedLearner, batches: Sequence[PackedBatch], labels_1: Tensor) -> None:
    learner.graphs.capture(
        (batches[0].shape, True), batches[0], lambda batch: _stacked(update(learner, [batch], labels_1))
    )


def _capture_parts(learner: CapturedLearner, batches: Sequence[PackedBatch], labels_1: Tensor) -> None:
    graphs = learner.graphs

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


@contextmanager
def _capturable(optimizer: Optimizer) -> Iterator[None]:
    """Inside this context, PyTorch's Adam lets itself be captured; its fused form computes the same."""
    try:
        optimizer.param_groups[0]["capturable"] = True
        yield
    finally:
        optimizer.param_groups[0]["capturable"] = False
