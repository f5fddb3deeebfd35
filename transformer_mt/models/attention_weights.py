"""The weights of every attention in a model that has layers and heads of attention.

L layers  B sentences  H heads  S source positions  T target positions
"""

from dataclasses import dataclass
from typing import Literal, Self, assert_never

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.errors import AttentionError

FloatArray = NDArray[np.float32]
Attention = Literal["cross", "encoder", "decoder"]
"""The decoder's to the source; the encoder's to itself; the decoder's to itself."""


@dataclass(frozen=True)
class AttentionWeights:
    """The weights of each layer under teacher forcing; their rows sum to one, or with local attention to less."""

    encoder_LBHSS: Tensor
    decoder_LBHTT: Tensor
    cross_LBHTS: Tensor

    @classmethod
    def to_source(cls, cross_LBHTS: Tensor) -> Self:
        """Those of a model that attends to nothing but the source: it has no layers of self-attention."""
        _, B, _, T, S = cross_LBHTS.shape
        return cls(cross_LBHTS.new_zeros(0, B, 1, S, S), cross_LBHTS.new_zeros(0, B, 1, T, T), cross_LBHTS)

    def heads(self, attention: Attention, layer: int) -> Tensor:
        """BHTS, BHSS or BHTT of one layer, which is numbered as in `index_of`. Raises AttentionError as that does."""
        match attention:
            case "cross":
                layers = self.cross_LBHTS
            case "encoder":
                layers = self.encoder_LBHSS
            case "decoder":
                layers = self.decoder_LBHTT
            case _:
                assert_never(attention)
        return layers[index_of(attention, layer, len(layers))]


def index_of(attention: Attention, layer: int, num_layers: int) -> int:
    """The index, from 0, of a layer of that attention: 1 is the lowest, 0 the last but one, or the only one.

    Raises AttentionError if there is no such layer, or none at all.
    """
    if not num_layers:
        raise AttentionError(
            f"the {attention} has no self-attention in this model: its attention to the source is all that can be shown"
        )
    if not 0 <= layer <= num_layers:
        raise AttentionError(
            f"layer {layer}: the {attention} attention has layers 1 to {num_layers}; name one of them, or 0 for the "
            "last but one"
        )
    return layer - 1 if layer else max(0, num_layers - 2)
