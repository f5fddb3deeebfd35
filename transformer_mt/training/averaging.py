"""An exponential moving average of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class MovingAverage:
    """average <- decay average + (1 - decay) weights, after each update; with a decay of 0 there is none.

    Early on the decay is (1 + step) / (10 + step) where that is less, lest the first, random weights linger.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = dict(model.named_parameters()) if decay else {}
        self.averages = {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after update `step`."""
        if self.averages:
            decay = min(self.decay, (1 + step) / (10 + step))
            blend = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            blend(list(self.averages.values()), list(self.weights.values()), step)

    @contextmanager
    def in_place_of_the_weights(self) -> Iterator[None]:
        """The model with the average, where there is one."""
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
