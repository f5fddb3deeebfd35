"""The state of a Transformer's decoder: keys and values of the words of each hypothesis so far, and of the sources.

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
    """The keys and values of the past of each hypothesis, in one decoder layer: all that its next word may see."""

    key_BWHPK: Tensor
    value_BWHPK: Tensor

    def attend(self, query_BHWK: Tensor, key_BHWK: Tensor, value_BHWK: Tensor, attention: Attention) -> Tensor:
        """Add the newest position of each hypothesis to its past; returns its attention to all of these, BHWK."""
        # Each hypothesis is a row of its own, with one query.
        parts = (query_BHWK, key_BHWK, value_BHWK)
        query_BWH1K, key_BWH1K, value_BWH1K = (x.transpose(1, 2)[..., None, :] for x in parts)
        self.key_BWHPK = torch.cat([self.key_BWHPK, key_BWH1K], dim=3)
        self.value_BWHPK = torch.cat([self.value_BWHPK, value_BWH1K], dim=3)
        everything = query_BHWK.new_ones(1, dtype=torch.bool)
        return attention(query_BWH1K, self.key_BWHPK, self.value_BWHPK, everything)[..., 0, :].transpose(1, 2)

    def select(self, *index: Tensor) -> "Cache":
        """The pasts of some sentences or, with a second index, of some hypotheses of each sentence."""
        return replace(self, key_BWHPK=self.key_BWHPK[index], value_BWHPK=self.value_BWHPK[index])


@dataclass(frozen=True)
class TransformerState(DecoderState):
    """For each decoder layer, the cache of the hypotheses and the memory of their sources."""

    caches: list[Cache]
    memories: list[Memory]
    position: int = 0

    def follow(self, parent_BW: Tensor) -> "TransformerState":
        sentence_B1 = torch.arange(len(parent_BW), device=parent_BW.device)[:, None]
        return replace(self, caches=[cache.select(sentence_B1, parent_BW) for cache in self.caches])

    def keep(self, sentences: Tensor) -> "TransformerState":
        caches = [cache.select(sentences) for cache in self.caches]
        return replace(self, caches=caches, memories=[memory.select(sentences) for memory in self.memories])


def empty_cache(memory: Memory, width: int) -> Cache:
    """The cache of `width` hypotheses of each sentence, before their first word."""
    empty_BWH0K = memory.key_BHSK[:, None, :, :0].repeat(1, width, 1, 1, 1)
    return Cache(empty_BWH0K, memory.value_BHSK[:, None, :, :0].repeat(1, width, 1, 1, 1))
