"""The weights of every attention in a model that has layers and heads of attention.

L layers  B sentences  H heads  S source positions  T target positions
"""

from dataclasses import dataclass
from typing import Literal, assert_never

from torch import Tensor

from transformer_mt.errors import AttentionError

Attention = Literal["cross", "encoder", "decoder"]
"""The decoder's to the source; the encoder's to itself; the decoder's to itself."""


@dataclass(frozen=True)
class AttentionWeights:
    """The weights of each layer under teacher forcing; their rows sum to one."""

    encoder_LBHSS: Tensor
    decoder_LBHTT: Tensor
    cross_LBHTS: Tensor

    def heads(self, attention: Attention, layer: int) -> Tensor:
        """BHTS, BHSS or BHTT of one layer: 1 is the lowest, 0 the last but one, or the only one.

        Raises AttentionError if there is no such layer.
        """
        match attention:
            case "cross":
                layers = self.cross_LBHTS
            case "encoder":
                layers = self.encoder_LBHSS
            case "decoder":
                layers = self.decoder_LBHTT
            case _:
                assert_never(attention)
        if not 0 <= layer <= len(layers):
            raise AttentionError(
                f"layer {layer}: the {attention} attention has layers 1 to {len(layers)}; name one of them, or 0 for "
                "the last but one"
            )
        return layers[layer - 1 if layer else max(0, len(layers) - 2)]
