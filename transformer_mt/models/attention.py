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

    `mask` broadcasts to BHTS; True may be attended to, and each query needs one such key.
    """
    scores_BHTS = query_BHTK / math.sqrt(query_BHTK.shape[-1]) @ key_BHSK.transpose(-1, -2)
    weights_BHTS = scores_BHTS.masked_fill_(~mask, -math.inf).softmax(dim=-1)
    return weights_BHTS @ value_BHSK, weights_BHTS


Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Attention of padded rows: query BHTK, key BHSK, value BHSK and a mask to BHTK."""


class Sight(Protocol):
    """What each query may see, wherever that lies: in padded rows, in the past of a search, or packed for speed."""

    def attend(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, attention: Attention) -> Tensor:
        """What each query reads of it by this attention, BHTK."""


@dataclass(frozen=True)
class Padded:
    """Sentences in rows with padding: a query sees the keys where the mask, which broadcasts to BHTS, is true."""

    mask: Tensor

    def attend(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, attention: Attention) -> Tensor:
        return attention(query_BHTK, key_BHSK, value_BHSK, self.mask)


def padding_mask(tokens_BS: Tensor) -> Tensor:
    """True at real tokens, which may be attended to; B11S."""
    return (tokens_BS != PAD)[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True where the key is not after the query; TT."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
