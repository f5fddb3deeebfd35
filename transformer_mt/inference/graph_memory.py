"""Places in memory that stay where they are from step to step, for tensors that CUDA graphs read and write."""

import math

import torch
from torch import Tensor


class Memory:
    """One place for a tensor, from step to step: `held` is all of it, `shown` is it without rows added by rounding."""

    def __init__(self, padding: float = 0.0) -> None:
        self.padding = padding
        self.room = 0
        """How many numbers it has room for at least once it is used, if that is known before."""
        self.all = self.held = self.shown = torch.empty(0)

    def hold(self, x: Tensor, *shape: int) -> bool:
        """Copy x into the first corner of a tensor of that shape, with padding elsewhere, unless it lies there already.

        True if the memory was too small: then the tensor lies in another place now.
        """
        if x is self.shown and self.held.shape == shape:
            return False
        size = math.prod(shape)
        moves = size > len(self.all)
        if moves:
            with torch.inference_mode(False):  # so that it can be written to within, and without
                self.all = x.new_empty(max(size, self.room))
        elif x is self.shown:
            x = x.clone()  # it lies where it is going to be written
        self.held = self.all[:size].view(shape)
        if x.shape != shape:
            self.held.fill_(self.padding)
        self.held[tuple(map(slice, x.shape))].copy_(x)
        self.shown = self.held[: len(x)]
        return moves


class Memories:
    """Places for one tensor of each layer."""

    def __init__(self, num_layers: int) -> None:
        self.of_layers = [Memory() for _ in range(num_layers)]

    def hold(self, layers: list[Tensor], *shape: int) -> bool:
        moved = [memory.hold(x, *shape) for memory, x in zip(self.of_layers, layers, strict=True)]
        return any(moved)

    @property
    def held(self) -> list[Tensor]:
        return [memory.held for memory in self.of_layers]

    @property
    def shown(self) -> list[Tensor]:
        return [memory.shown for memory in self.of_layers]
