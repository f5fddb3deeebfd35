"""Work of a GPU that is captured as CUDA graphs, and the fixed places of what differs between two replays of it."""

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from transformer_mt.batches.packing import PackedBatch

Work = Callable[[], Tensor]
Capture = Callable[[Work], Work]
"""Records what a GPU has to do for some work, without doing it. Returns a function that does it again and again."""


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
        parts = _even(like)
        ids = torch.empty(sum(map(len, parts)), dtype=torch.int64, device=self.sums_3.device)
        self._captured[key] = ids, self._capture(lambda: work(_batch_of(ids, like)))

    def replay(self, key: Hashable, batch: PackedBatch | None = None) -> Tensor:
        """Do this work again, on this batch. The next replay overwrites the result."""
        ids, work = self._captured[key]
        if batch is not None:
            _copy(_even(batch), ids)
        return work()


def _copy(parts: Sequence[Tensor], to: Tensor) -> None:
    """Copy parts together from the CPU to a fixed place, after the queued work of a GPU; the host does not wait."""
    together = torch.cat(list(parts), out=torch.empty(to.shape, dtype=to.dtype, pin_memory=to.is_cuda))
    to.copy_(together, non_blocking=True)


def _even(batch: PackedBatch) -> list[Tensor]:
    """Its tensors, each of an even length: kernels are compiled anew for what begins at an odd place."""
    return [F.pad(part, (0, len(part) % 2)) if len(part) % 2 else part for part in batch.tensors().values()]


def _batch_of(ids: Tensor, like: PackedBatch) -> PackedBatch:
    """The batch with these fields, in the types and shapes of another batch."""
    found = torch.split(ids, [len(part) for part in _even(like)])
    named = zip(like.tensors().items(), found, strict=True)
    fields: dict[str, Any] = {name: ids[: len(part)].to(part.dtype) for (name, part), ids in named}
    return replace(like, **fields)
