"""What a frozen Transformer's decoder has seen of some hypotheses: keys and values, and who may see them.

B sentences  W hypotheses of a sentence  M source positions, rounded up  N slots of the cache
K width of a head  X sentences times heads
"""

import math
from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn import functional as F

from transformer_mt.inference.folded import FoldedMemory
from transformer_mt.models.interface import DecoderState

ROW = 16  # with rows of this many numbers, or a multiple, softmax takes a tenth to a third of the time


@dataclass(frozen=True, kw_only=True)
class FrozenState(DecoderState):
    """The hypotheses of a sentence share its slots. Each position of each hypothesis has one.

    A cached key never moves; `past_B1WN` says which slots are a hypothesis' own past.
    """

    keys_XKN: list[Tensor]
    """One tensor for each layer, as of the values."""
    values_XNK: list[Tensor]
    past_B1WN: Tensor
    """Added to scores: 0 at slots that the hypothesis may see, else -inf."""
    memory_keys_XKM: list[Tensor]
    memory_values_XMK: list[Tensor]
    memory_bias_B11M: Tensor
    """Added to scores: 0 at the source, -inf at padding."""
    position: int
    used: int
    """How many slots are taken: the first ones."""
    folded: tuple[FoldedMemory, ...] = ()
    """One for each layer, to be read instead of its memory; empty where the memory is read."""

    def follow(self, parent_BW: Tensor) -> "FrozenState":
        slots_B1WN = parent_BW[:, None, :, None].expand(-1, -1, -1, self.past_B1WN.shape[-1])
        return replace(self, past_B1WN=self.past_B1WN.gather(2, slots_B1WN))

    def keep(self, sentences: Tensor) -> "FrozenState":
        def kept(layers_XYZ: list[Tensor]) -> list[Tensor]:
            B, X = len(self.past_B1WN), len(layers_XYZ[0])
            by_sentence = (x_XYZ.view(B, X // B, *x_XYZ.shape[1:]) for x_XYZ in layers_XYZ)
            return [x_BHYZ.index_select(0, sentences).flatten(0, 1) for x_BHYZ in by_sentence]

        return replace(
            self,
            keys_XKN=kept(self.keys_XKN),
            values_XNK=kept(self.values_XNK),
            past_B1WN=self.past_B1WN.index_select(0, sentences),
            memory_keys_XKM=kept(self.memory_keys_XKM),
            memory_values_XMK=kept(self.memory_values_XMK),
            memory_bias_B11M=self.memory_bias_B11M.index_select(0, sentences),
        )

    def with_slots(self) -> "FrozenState":
        """The state with slots for one more position; each hypothesis sees its own one of them."""
        W, N = self.past_B1WN.shape[2:]
        state = self
        if self.used + W > N:
            room = ROW * math.ceil(W / 2)  # so much that copying is rare, and so little that attention stays short
            state = replace(
                self,
                keys_XKN=[with_zeros(key_XKN, 2, room) for key_XKN in self.keys_XKN],
                values_XNK=[with_zeros(value_XNK, 1, room) for value_XNK in self.values_XNK],
                past_B1WN=F.pad(self.past_B1WN, (0, room), value=-math.inf),
            )
        state.past_B1WN[..., self.used : self.used + W].diagonal(dim1=2, dim2=3).zero_()
        return state


def with_zeros(x: Tensor, dim: int, number: int) -> Tensor:
    """F.pad(x) with `number` zeros behind one dimension. F.pad writes zeros everywhere first, which takes longer."""
    length = x.shape[dim]
    longer = x.new_empty([*x.shape[:dim], length + number, *x.shape[dim + 1 :]])
    longer.narrow(dim, 0, length).copy_(x)
    longer.narrow(dim, length, number).zero_()
    return longer
