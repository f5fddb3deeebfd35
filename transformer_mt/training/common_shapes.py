"""Compiles the model for the shapes that many micro-batches have, and for no others.

N packed tokens  D model width
"""

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from transformer_mt.device import Device
from transformer_mt.models.packed import Packed

Features = Callable[..., Tensor]
"""`Seq2Seq.features`, of packed sentences where the model takes them."""

# Compiling takes about a minute, and a micro-batch that is not compiled loses some hundredths of a second: after about
# so many of them, compiling would have been the shorter way.
PATIENCE_CUDA = 1000


class CommonShapes:
    """Equals `features` of packed sentences. Computes them by `compiled`, which compiles for each shape anew, or not.

    The largest shape so far is compiled at once: it is that of nearly all micro-batches. A smaller one, that of the
    last micro-batch of an epoch or of one that was split, is compiled when it has come more often than `patience`.
    """

    def __init__(self, features: Features, compiled: Features, patience: int) -> None:
        self._features, self._compiled, self._patience = features, compiled, patience
        self._seen: Counter[tuple[int, int]] = Counter()

    def __call__(self, source: Packed | Tensor, target: Packed | Tensor) -> Tensor:
        """ND."""
        assert isinstance(source, Packed) and isinstance(target, Packed), "padded batches are of too many shapes"
        shape = (len(source.tokens), len(target.tokens))
        self._seen[shape] += 1
        is_common = self._seen[shape] > self._patience or sum(shape) == max(map(sum, self._seen))
        return (self._compiled if is_common else self._features)(source, target)


def compiled_for_common_shapes(features: Features, device: Device) -> Features:
    """Equals `features`, compiled where it pays."""
    return CommonShapes(features, torch.compile(features, dynamic=False), patience_on(device))


def patience_on(device: Device) -> int:
    """How often a shape comes before it is compiled; 0 on a CPU.

    What is compiled rounds differently, and a run that goes on on a CPU has to round as if it had not been interrupted.
    """
    return PATIENCE_CUDA if device.torch_device.type == "cuda" else 0
