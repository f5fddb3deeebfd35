"""Attention, its masks, and multi-head attention (Vaswani et al. 2017, sec. 3.2).

B sentences  T query positions  S key positions  D model width  H heads  K width of a head
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each on its own projection of queries, keys and values (sec. 3.2.2)."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        # D rows each for queries, keys and values: in one matrix, so that self-attention needs one product.
        self.in_projection = nn.Linear(d_model, 3 * d_model)
        self.out_projection = nn.Linear(d_model, d_model)
        for block_DD in (*self.in_projection.weight.chunk(3), self.out_projection.weight):
            nn.init.xavier_uniform_(block_DD)
        nn.init.zeros_(self.in_projection.bias)
        nn.init.zeros_(self.out_projection.bias)

    def forward(self, x_BTD: Tensor, see: Sight) -> Tensor:
        """Self-attention: each position attends to the positions that it may see; BTD."""
        query_BTD, key_BTD, value_BTD = self.in_projection(x_BTD).chunk(3, dim=-1)
        return self.attend(self.heads(query_BTD), self.heads(key_BTD), self.heads(value_BTD), see)

    def memory(self, memory_BSD: Tensor, see: Sight) -> "Memory":
        """The keys and values of the encoder's output, computed once for all steps of a search."""
        key_BSD, value_BSD = self.project_rows(memory_BSD, slice(self.d_model, None)).chunk(2, dim=-1)
        return Memory(self.heads(key_BSD), self.heads(value_BSD), see)

    def read(self, x_BTD: Tensor, memory: "Memory") -> Tensor:
        """Encoder-decoder attention: each position attends to the encoder's output; BTD."""
        query_BTD = self.project_rows(x_BTD, slice(self.d_model))
        return self.attend(self.heads(query_BTD), memory.key_BHSK, memory.value_BHSK, memory.see)

    def project_rows(self, x_BTD: Tensor, rows: slice) -> Tensor:
        """The product with only these rows of the matrix: queries, keys and values have D rows each."""
        return F.linear(x_BTD, self.in_projection.weight[rows], self.in_projection.bias[rows])

    def heads(self, x_BTD: Tensor) -> Tensor:
        """Split the model width into heads; BHTK."""
        return x_BTD.view(*x_BTD.shape[:-1], self.num_heads, self.d_model // self.num_heads).transpose(-3, -2)

    def attend(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, see: Sight) -> Tensor:
        """Attend in each head, then join the heads and map them back to the model width; BTD."""
        mixed_BHTK = see.attend(query_BHTK, key_BHSK, value_BHSK, self.attention)
        output_BTD: Tensor = self.out_projection(mixed_BHTK.transpose(-3, -2).flatten(-2))
        return output_BTD

    def attention(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Tensor) -> Tensor:
        """Eq. 1, BHTK."""
        return attention(query_BHTK, key_BHSK, value_BHSK, mask)[0]


@dataclass(frozen=True)
class Memory:
    """The keys and values of the encoder's output for one decoder layer."""

    key_BHSK: Tensor
    value_BHSK: Tensor
    see: Sight

    def select(self, sentences: Tensor) -> "Memory":
        """The memory of only the sentences with these indices, in this order. Needs padded rows."""
        assert isinstance(self.see, Padded), "a search has padded rows"
        parts = (self.key_BHSK, self.value_BHSK, self.see.mask)  # contiguous copies, which later steps read faster
        key_BHSK, value_BHSK, mask_B11S = (part.index_select(0, sentences) for part in parts)
        return Memory(key_BHSK, value_BHSK, Padded(mask_B11S))
