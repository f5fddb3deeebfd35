"""Attention and its masks (Vaswani et al. 2017, sec. 3.2.1 and 3.2.3).

B sentences  T query positions  S key positions  H heads  K width of a head
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from transformer_mt.base.languages import PAD


def attention(query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T / sqrt(d_k)) V (eq. 1), BHTK, and the weights BHTS, whose rows sum to one.

    `mask` broadcasts to BHTS. True means that the query may see the key; each query must see at least one key.
    """
    scores_BHTS = query_BHTK / math.sqrt(query_BHTK.shape[-1]) @ key_BHSK.transpose(-1, -2)
    weights_BHTS = scores_BHTS.masked_fill_(~mask, -math.inf).softmax(dim=-1)
    return weights_BHTS @ value_BHSK, weights_BHTS


Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Attention in padded rows: takes query BHTK, key BHSK, value BHSK and a mask, and returns BHTK."""


class Sight(Protocol):
    """Which keys each query may see. The keys are in padded rows, in the cache of a search, or packed for speed."""

    def attend(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, attention: Attention) -> Tensor:
        """The output BHTK of `attention` for each query, from the keys and values that it may see."""


@dataclass(frozen=True)
class Padded:
    """Sentences in rows with padding. A query sees the keys where the mask is True; the mask broadcasts to BHTS."""

    mask: Tensor

    def attend(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, attention: Attention) -> Tensor:
        return attention(query_BHTK, key_BHSK, value_BHSK, self.mask)


def padding_mask(tokens_BS: Tensor) -> Tensor:
    """True at real tokens, False at padding; B11S."""
    return (tokens_BS != PAD)[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True where the key is not after the query; TT."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
