"""What a Transformer's decoder has seen of some hypotheses: the keys and values of their pasts, and the sources.

B sentences  W hypotheses of a sentence  R hypotheses of all sentences, those of one side by side  S source positions
P positions of the past  H heads  K width of a head
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transformer_mt.models.interface import DecoderState
from transformer_mt.models.multi_head import Memory


@dataclass
class Cache:
    """Keys and values that one decoder layer has computed for the past of each hypothesis."""

    key_RHPK: Tensor
    value_RHPK: Tensor
    window: int
    """If not 0, a hypothesis sees only the newest position and this many before it; older ones are dropped."""

    def add(self, key_RH1K: Tensor, value_RH1K: Tensor) -> tuple[Tensor, Tensor]:
        """Append those of the newest position. All that it may see."""
        first = -(self.window + 1) if self.window else 0
        self.key_RHPK = torch.cat([self.key_RHPK, key_RH1K], dim=2)[:, :, first:]
        self.value_RHPK = torch.cat([self.value_RHPK, value_RH1K], dim=2)[:, :, first:]
        return self.key_RHPK, self.value_RHPK

    def select(self, rows_R: Tensor) -> "Cache":
        """Of these hypotheses, in that order."""
        return Cache(self.key_RHPK.index_select(0, rows_R), self.value_RHPK.index_select(0, rows_R), self.window)


@dataclass(frozen=True)
class TransformerState(DecoderState):
    """The pasts of the hypotheses, and the sources, as each decoder layer reads them."""

    caches: list[Cache]
    memories: list[Memory]
    rows_BW: Tensor
    """Which of the R rows of the caches is each hypothesis."""
    position: int

    def follow(self, parent_BW: Tensor) -> "TransformerState":
        return self._select(self.rows_BW.gather(1, parent_BW))

    def keep(self, sentences: Tensor) -> "TransformerState":
        memories = [memory.select(sentences) for memory in self.memories]
        return replace(self._select(self.rows_BW.index_select(0, sentences)), memories=memories)

    def _select(self, rows_BW: Tensor) -> "TransformerState":
        """The hypotheses of these rows, in that order."""
        caches = [cache.select(rows_BW.flatten()) for cache in self.caches]
        new_BW = torch.arange(rows_BW.numel(), device=rows_BW.device).view_as(rows_BW)
        return replace(self, caches=caches, rows_BW=new_BW)
