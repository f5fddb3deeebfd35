"""Multi-head attention (Vaswani et al. 2017, sec. 3.2.2).

B sentences  T query positions  S key positions  D model width  H heads  K width of a head
N packed queries  M packed keys
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.kernels.dropout import Dropout
from transformer_mt.kernels.linear import Linear, linear
from transformer_mt.kernels.packed_attention import Segments, variable_length_attention
from transformer_mt.kernels.row_attention import RowMask, attention_over_rows
from transformer_mt.models.attention import ScaledDot, build_score, mix
from transformer_mt.settings.model import Score as ScoreName


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each on its own projection of queries, keys and values (sec. 3.2.2)."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0, score: ScoreName = "scaled_dot") -> None:
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.score = build_score(score, num_heads, d_model // num_heads, d_model // num_heads)
        self.dropout = Dropout(dropout)
        # Rows: queries, keys, values. One matrix, so that self-attention is one product.
        self.in_projection = Linear(d_model, 3 * d_model)
        self.out_projection = Linear(d_model, d_model)
        for block_DD in self.in_projection.weight.chunk(3):
            nn.init.xavier_uniform_(block_DD)
        nn.init.xavier_uniform_(self.out_projection.weight)
        nn.init.zeros_(self.in_projection.bias)
        nn.init.zeros_(self.out_projection.bias)

    @property
    def is_scaled_dot(self) -> bool:
        return isinstance(self.score, ScaledDot)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, prepared keys and values of the same positions; each BHTK, or HNK of packed ND."""
        query_BTD, key_BTD, value_BTD = self.in_projection(x_BTD).chunk(3, dim=-1)
        key_BHTK = self.score.prepare(self._split_heads(key_BTD))
        return self._split_heads(query_BTD), key_BHTK, self._split_heads(value_BTD)

    def project_query(self, x_BTD: Tensor) -> Tensor:
        """Queries alone; BHTK."""
        rows = slice(self.d_model)
        return self._split_heads(linear(x_BTD, self.in_projection.weight[rows], self.in_projection.bias[rows]))

    def project_memory(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Prepared keys and values alone; each BHSK."""
        return self.split_memory(linear(memory_BSD, *self.memory_projection()))

    def memory_projection(self) -> tuple[Tensor, Tensor]:
        """The weight and the bias that keys and values are made with."""
        rows = slice(self.d_model, None)
        return self.in_projection.weight[rows], self.in_projection.bias[rows]

    def split_memory(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """Prepared keys and values that were made side by side; each BHSK."""
        key_BSD, value_BSD = both.chunk(2, dim=-1)
        return self.score.prepare(self._split_heads(key_BSD)), self._split_heads(value_BSD)

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
        keys and values are packed: HNK, and so is the output: ND. Weights are not dropped out then, nor recorded,
        and scores are scaled dot products.
        """
        if isinstance(mask, Segments | RowMask):
            assert record is None, "packed attention never has its weights at hand"
            assert self.is_scaled_dot, "other scores need padded rows"
            assert not (self.training and self.dropout.probability), "dropout of the weights needs padded rows"
            query_NHK, key_MHK, value_MHK = (x.transpose(0, 1) for x in (query_BHTK, key_BHSK, value_BHSK))
            if isinstance(mask, RowMask):
                mixed_NHK = attention_over_rows(query_NHK, key_MHK, value_MHK, mask)
            else:
                mixed_NHK = variable_length_attention(query_NHK, key_MHK, value_MHK, mask)
            mixed_BHTK = mixed_NHK.transpose(0, 1)
        elif query_BHTK.is_cuda and record is None and self.is_scaled_dot:
            dropout = self.dropout.probability if self.training else 0.0
            mixed_BHTK = F.scaled_dot_product_attention(
                query_BHTK, key_BHSK, value_BHSK, attn_mask=mask, dropout_p=dropout
            )
        else:
            mixed_BHTK, weights_BHTS = mix(self.score(query_BHTK, key_BHSK), value_BHSK, mask, self.dropout)
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
