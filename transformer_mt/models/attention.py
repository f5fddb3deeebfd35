"""Masks, scaled dot-product attention and multi-head attention (Vaswani et al. 2017, sec. 3.2).

B sentences  T query positions  S key positions  D model width  H heads  K width of a head
N packed queries  M packed keys
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.models.dropout import Dropout
from transformer_mt.models.linear import Linear, linear
from transformer_mt.models.rows import RowMask, attention_over_rows
from transformer_mt.vocabulary import PAD


def padding_mask(tokens_BS: Tensor) -> Tensor:
    """True at real tokens, which may be attended to; B11S."""
    return (tokens_BS != PAD)[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True where the key's position is not after the query's; TT."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


@dataclass(frozen=True)
class Segments:
    """Who may see whom among sentences that lie end to end: a query sees the keys of its own segment.

    Segment i is the rows offsets[i] to offsets[i + 1]. The segments cover every row, on both sides, and none
    has queries but no keys.
    """

    query_offsets: Tensor
    """int32 [segments + 1]."""
    key_offsets: Tensor
    """int32 [segments + 1]."""
    max_queries: int
    """No segment has more. It sizes what is launched on a GPU: a bound serves, a constant one compiles once."""
    max_keys: int
    causal: bool
    """Whether a query sees no key that comes after it. Queries and keys are of the same segments then."""


def variable_length_attention(query_NHK: Tensor, key_MHK: Tensor, value_MHK: Tensor, segments: Segments) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V (eq. 1) of sentences that lie end to end, each for itself; NHK.

    On CUDA a FlashAttention kernel, in fp16 and bf16 alone, which computes nothing across segments (Dao 2023,
    arXiv 2307.08691). Elsewhere the plain formula with a mask of all queries by all keys, to compare with.
    """
    if query_NHK.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        mixed_NHK = varlen_attn(
            query_NHK,
            key_MHK,
            value_MHK,
            segments.query_offsets,
            segments.key_offsets,
            segments.max_queries,
            segments.max_keys,
            window_size=(-1, 0) if segments.causal else (-1, -1),
        )
        assert isinstance(mixed_NHK, Tensor), "attention alone was asked for"
        return mixed_NHK
    mask_NM = segments_mask(segments, len(query_NHK), len(key_MHK))
    mixed_HNK, _ = scaled_dot_product(
        query_NHK.transpose(0, 1), key_MHK.transpose(0, 1), value_MHK.transpose(0, 1), mask_NM
    )
    return mixed_HNK.transpose(0, 1)


def segments_mask(segments: Segments, num_queries: int, num_keys: int) -> Tensor:
    """True where a query may see a key; NM."""
    query_N = torch.arange(num_queries, dtype=torch.int32, device=segments.query_offsets.device)
    key_M = torch.arange(num_keys, dtype=torch.int32, device=segments.key_offsets.device)
    # Which segment a row is of: so many have begun with it.
    query_segment_N = torch.searchsorted(segments.query_offsets, query_N, right=True)
    key_segment_M = torch.searchsorted(segments.key_offsets, key_M, right=True)
    mask_NM = query_segment_N[:, None] == key_segment_M
    return mask_NM & (key_M <= query_N[:, None]) if segments.causal else mask_NM


def scaled_dot_product(
    query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Tensor, dropout: Dropout | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T / sqrt(d_k)) V (eq. 1), BHTK, and the weights BHTS, whose rows sum to one.

    `mask` broadcasts to BHTS; True may be attended to, and each query needs one such key.
    """
    scores_BHTS = query_BHTK / math.sqrt(query_BHTK.shape[-1]) @ key_BHSK.transpose(-1, -2)
    weights_BHTS = scores_BHTS.masked_fill_(~mask, -math.inf).softmax(dim=-1)
    kept_BHTS = weights_BHTS if dropout is None else dropout(weights_BHTS)
    return kept_BHTS @ value_BHSK, weights_BHTS


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each on its own projection of queries, keys and values (sec. 3.2.2)."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.dropout = Dropout(dropout)
        # Rows: queries, keys, values. One matrix, so that self-attention is one product.
        self.in_projection = Linear(d_model, 3 * d_model)
        self.out_projection = Linear(d_model, d_model)
        for block_DD in self.in_projection.weight.chunk(3):
            nn.init.xavier_uniform_(block_DD)
        nn.init.xavier_uniform_(self.out_projection.weight)
        nn.init.zeros_(self.in_projection.bias)
        nn.init.zeros_(self.out_projection.bias)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the same positions, for self-attention; each BHTK, or HNK of packed ND."""
        query_BTD, key_BTD, value_BTD = self.in_projection(x_BTD).chunk(3, dim=-1)
        return self._split_heads(query_BTD), self._split_heads(key_BTD), self._split_heads(value_BTD)

    def project_query(self, x_BTD: Tensor) -> Tensor:
        """Queries alone; BHTK."""
        rows = slice(self.d_model)
        return self._split_heads(linear(x_BTD, self.in_projection.weight[rows], self.in_projection.bias[rows]))

    def project_memory(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values alone; each BHSK."""
        return self.split_memory(linear(memory_BSD, *self.memory_projection()))

    def memory_projection(self) -> tuple[Tensor, Tensor]:
        """The weight and the bias that keys and values are made with."""
        rows = slice(self.d_model, None)
        return self.in_projection.weight[rows], self.in_projection.bias[rows]

    def split_memory(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values that were made side by side; each BHSK."""
        key_BSD, value_BSD = both.chunk(2, dim=-1)
        return self._split_heads(key_BSD), self._split_heads(value_BSD)

    def attend(
        self,
        query_BHTK: Tensor,
        key_BHSK: Tensor,
        value_BHSK: Tensor,
        mask: Tensor | Segments | RowMask,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """What each query reads, heads joined and mapped back to the model width; BTD.

        The weights BHTS are appended to `record`, if there is one. With segments or rows for a mask, queries,
        keys and values are packed: HNK, and so is the output: ND. Weights are not dropped out then, nor recorded.
        """
        if isinstance(mask, Segments | RowMask):
            assert record is None, "packed attention never has its weights at hand"
            assert not (self.training and self.dropout.probability), "dropout of the weights needs padded rows"
            query_NHK, key_MHK, value_MHK = (x.transpose(0, 1) for x in (query_BHTK, key_BHSK, value_BHSK))
            if isinstance(mask, RowMask):
                mixed_NHK = attention_over_rows(query_NHK, key_MHK, value_MHK, mask)
            else:
                mixed_NHK = variable_length_attention(query_NHK, key_MHK, value_MHK, mask)
            mixed_BHTK = mixed_NHK.transpose(0, 1)
        elif query_BHTK.is_cuda and record is None:
            dropout = self.dropout.probability if self.training else 0.0
            mixed_BHTK = F.scaled_dot_product_attention(
                query_BHTK, key_BHSK, value_BHSK, attn_mask=mask, dropout_p=dropout
            )
        else:
            mixed_BHTK, weights_BHTS = scaled_dot_product(query_BHTK, key_BHSK, value_BHSK, mask, self.dropout)
            if record is not None:
                record.append(weights_BHTS)
        mixed_BTD = mixed_BHTK.transpose(-3, -2).flatten(-2)
        output_BTD: Tensor = self.out_projection(mixed_BTD)
        return output_BTD

    def _split_heads(self, x_BTD: Tensor) -> Tensor:
        width = self.d_model // self.num_heads
        return x_BTD.view(*x_BTD.shape[:-1], self.num_heads, width).transpose(-3, -2)


def project_memories(attentions: Sequence[MultiHeadAttention], memory: Tensor) -> list[tuple[Tensor, Tensor]]:
    """`project_memory` of each, in one product: a GPU then reads the memory once and writes its gradient once.

    CPUs are 5 to 20 % slower at it than at one product after the other.
    """
    weights, biases = zip(*(attention.memory_projection() for attention in attentions), strict=True)
    parts = linear(memory, torch.cat(weights), torch.cat(biases)).chunk(len(attentions), dim=-1)
    return [attention.split_memory(part) for attention, part in zip(attentions, parts, strict=True)]
