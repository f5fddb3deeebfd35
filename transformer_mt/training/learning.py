"""All that an update changes, such as the moving average of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from transformer_mt.kernels.device import Device
from transformer_mt.training.scale.out_of_memory import Room
from transformer_mt.training.update import Numbers

if TYPE_CHECKING:
    from transformer_mt.models.interface import Seq2Seq
    from transformer_mt.training.batch_loss import BatchLoss


class MovingAverage:
    """average <- decay average + (1 - decay) weights, after each update; with a decay of 0 there is none.

    At the beginning the decay is (1 + step) / (10 + step) if this is smaller, so that the random initial weights fade.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = dict(model.named_parameters()) if decay else {}
        self.averages = {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Include the weights after update `step`."""
        if self.averages:
            decay = min(self.decay, (1 + step) / (10 + step))
            blend = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            blend(list(self.averages.values()), list(self.weights.values()), step)

    @contextmanager
    def in_place_of_the_weights(self) -> Iterator[None]:
        """Inside this context the model has the averaged weights, if there is an average."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, average in self.averages.items():
            weight: Tensor = self.weights[name]
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)


@dataclass(frozen=True)
class Learner:
    """All that an update changes: the model inside its loss, optimizer, moving average, and sizes that did not fit."""

    loss: "BatchLoss"
    optimizer: Optimizer
    average: MovingAverage
    room: Room = field(default_factory=Room)

    @property
    def model(self) -> "Seq2Seq":
        return self.loss.model

    @property
    def device(self) -> Device:
        return self.loss.device


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
