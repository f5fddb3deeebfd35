"""What a Transformer's decoder has seen of some hypotheses: the keys and values of their pasts, and the sources.

B sentences  W hypotheses of a sentence  S source positions  P positions of the past  H heads  K width of a head
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transformer_mt.models.attention import Attention
from transformer_mt.models.interface import DecoderState
from transformer_mt.models.multi_head import Memory


@dataclass
class Cache:
    """The keys and values that one decoder layer has computed for the past of each hypothesis: all that it may see."""

    key_BWHPK: Tensor
    value_BWHPK: Tensor
    window: int
    """If not 0, a hypothesis sees only the newest position and this many before it; older ones are dropped."""

    def attend(self, query_BHWK: Tensor, key_BHWK: Tensor, value_BHWK: Tensor, attention: Attention) -> Tensor:
        """What the newest position of each hypothesis reads of its past and of itself, BHWK. Extends the past by it."""
        # Each hypothesis is a row of its own, with one query.
        parts = (query_BHWK, key_BHWK, value_BHWK)
        query_BWH1K, key_BWH1K, value_BWH1K = (x.transpose(1, 2)[..., None, :] for x in parts)
        first = -(self.window + 1) if self.window else 0
        self.key_BWHPK = torch.cat([self.key_BWHPK, key_BWH1K], dim=3)[:, :, :, first:]
        self.value_BWHPK = torch.cat([self.value_BWHPK, value_BWH1K], dim=3)[:, :, :, first:]
        seen = (self.key_BWHPK, self.value_BWHPK, query_BHWK.new_ones(1, dtype=torch.bool))  # all of it
        return attention(query_BWH1K, *seen)[..., 0, :].transpose(1, 2)

    def select(self, *index: Tensor) -> "Cache":
        """The pasts of some sentences, or with a second index of some hypotheses of each."""
        return Cache(self.key_BWHPK[index], self.value_BWHPK[index], self.window)


@dataclass(frozen=True)
class TransformerState(DecoderState):
    """The pasts of the hypotheses, and their sources, as each decoder layer reads them."""

    caches: list[Cache]
    memories: list[Memory]
    position: int

    @classmethod
    def empty(cls, memories: list[Memory], width: int, window: int) -> "TransformerState":
        """The cache of `width` hypotheses of each sentence, before their first word."""

        def empty(memory_BHSK: Tensor) -> Tensor:
            return memory_BHSK[:, None, :, :0].repeat(1, width, 1, 1, 1)

        caches = [Cache(empty(memory.key_BHSK), empty(memory.value_BHSK), window) for memory in memories]
        return cls(caches, memories, position=0)

    def follow(self, parent_BW: Tensor) -> "TransformerState":
        sentence_B1 = torch.arange(len(parent_BW), device=parent_BW.device)[:, None]
        return replace(self, caches=[cache.select(sentence_B1, parent_BW) for cache in self.caches])

    def keep(self, sentences: Tensor) -> "TransformerState":
        caches = [cache.select(sentences) for cache in self.caches]
        return replace(self, caches=caches, memories=[memory.select(sentences) for memory in self.memories])
