"""What a Transformer's decoder has seen of some hypotheses: keys and values, and who may see them.

B sentences  W hypotheses of a sentence  S source positions  N slots of the cache
H heads  K width of a head  L layers
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.models.interface import DecoderState

SLOTS_GROW_BY = 16  # positions; the cache is enlarged so seldom that copying it does not count


@dataclass(frozen=True)
class Cache:
    """Keys and values that one decoder layer has computed so far, and room for more."""

    key_BHNK: Tensor
    value_BHNK: Tensor
    used: int

    def add(self, key_BHWK: Tensor, value_BHWK: Tensor) -> tuple[Tensor, Tensor]:
        """Write the newest into the slots after the used ones; all there are now."""
        now = self.used + key_BHWK.shape[2]
        self.key_BHNK[:, :, self.used : now] = key_BHWK
        self.value_BHNK[:, :, self.used : now] = value_BHWK
        return self.key_BHNK[:, :, :now], self.value_BHNK[:, :, :now]


@dataclass(frozen=True)
class TransformerState(DecoderState):
    """The hypotheses of a sentence share its slots: each position of each hypothesis has one.

    A cached key never moves; `visible_BWN` says which slots are a hypothesis' own past.
    """

    key_LBHNK: Tensor
    value_LBHNK: Tensor
    visible_BWN: Tensor
    memory_key_LBHSK: Tensor
    memory_value_LBHSK: Tensor
    memory_mask_B11S: Tensor
    position: int
    window: int
    """If not 0, a hypothesis sees the newest position and so many before it alone."""
    first_slots: tuple[int, ...] = ()
    """Of each position: it has as many slots as there were hypotheses then."""

    def follow(self, parent_BW: Tensor) -> "TransformerState":
        slots_BWN = parent_BW[..., None].expand(-1, -1, self.visible_BWN.shape[-1])
        return replace(self, visible_BWN=self.visible_BWN.gather(1, slots_BWN))

    def keep(self, sentences: Tensor) -> "TransformerState":
        return replace(
            self,
            key_LBHNK=self.key_LBHNK.index_select(1, sentences),
            value_LBHNK=self.value_LBHNK.index_select(1, sentences),
            visible_BWN=self.visible_BWN.index_select(0, sentences),
            memory_key_LBHSK=self.memory_key_LBHSK.index_select(1, sentences),
            memory_value_LBHSK=self.memory_value_LBHSK.index_select(1, sentences),
            memory_mask_B11S=self.memory_mask_B11S.index_select(0, sentences),
        )

    def see_themselves(self) -> "TransformerState":
        """The state with slots for one more position, in each of which a hypothesis sees its own."""
        B, W, used = self.visible_BWN.shape
        own_BWW = torch.eye(W, dtype=torch.bool, device=self.visible_BWN.device).expand(B, W, W)
        visible_BWN = torch.cat([self.visible_BWN, own_BWW], dim=2)
        if self.window and self.position > self.window:
            visible_BWN[..., : self.first_slots[self.position - self.window]] = False
        state = replace(self, visible_BWN=visible_BWN, first_slots=(*self.first_slots, used))
        if used + W <= self.key_LBHNK.shape[3]:
            return state
        more = (0, 0, 0, SLOTS_GROW_BY * W)
        return replace(state, key_LBHNK=F.pad(self.key_LBHNK, more), value_LBHNK=F.pad(self.value_LBHNK, more))
