"""Multi-head attention (Vaswani et al. 2017, sec. 3.2.2).

B sentences  T query positions  S key positions  D model width  H heads  K width of a head  N packed queries
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from transformer_mt.kernels.dropout import Dropout
from transformer_mt.kernels.fast_attention import Mask, fast_attention, shown
from transformer_mt.kernels.linear import Linear, linear, linear_maps
from transformer_mt.kernels.packed_attention import Segments, packed_self_attention
from transformer_mt.models.attention import attention
from transformer_mt.models.scores import ScaledDot, build_score
from transformer_mt.settings.model import SCALED_DOT, ScoreChoice


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each on its own projection of queries, keys and values (sec. 3.2.2)."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0, score: ScoreChoice = SCALED_DOT) -> None:
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.score = build_score(score, num_heads, d_model // num_heads, d_model // num_heads)
        self.dropout = Dropout(dropout)
        # Its rows make queries, keys and values. One matrix, so that self-attention is one product.
        self.in_projection = Linear(d_model, 3 * d_model)
        self.out_projection = Linear(d_model, d_model)
        for block_DD in (*self.in_projection.weight.chunk(3), self.out_projection.weight):
            nn.init.xavier_uniform_(block_DD)
        nn.init.zeros_(self.in_projection.bias)
        nn.init.zeros_(self.out_projection.bias)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, prepared keys and values of the same positions; each BHTK, or HNK of packed ND."""
        query_BTD, key_BTD, value_BTD = self.in_projection(x_BTD).chunk(3, dim=-1)
        key_BHTK = self.score.prepare(self._split_heads(key_BTD))
        return self._split_heads(query_BTD), key_BHTK, self._split_heads(value_BTD)

    def self_attention(self, x_BTD: Tensor, mask: Mask, record: list[Tensor] | None = None) -> Tensor:
        """What each position reads of all that it may see; as `attend`."""
        if isinstance(mask, Segments) and isinstance(self.score, ScaledDot) and record is None:
            # The same; on GPUs the gradients of the three are then made side by side, as the product was.
            qkv_N3HK = self.in_projection(x_BTD).unflatten(-1, (3, self.num_heads, -1))
            output_ND: Tensor = self.out_projection(packed_self_attention(qkv_N3HK, mask).flatten(-2))
            return output_ND
        return self.attend(*self.project(x_BTD), mask, record)

    def project_query(self, x_BTD: Tensor) -> Tensor:
        """Only the queries; BHTK."""
        rows = slice(self.d_model)
        return self._split_heads(linear(x_BTD, self.in_projection.weight[rows], self.in_projection.bias[rows]))

    def memory_projection(self) -> tuple[Tensor, Tensor]:
        """The weight and the bias that make keys and values of the encoder's output, side by side."""
        rows = slice(self.d_model, None)
        return self.in_projection.weight[rows], self.in_projection.bias[rows]

    def split_memory(self, both_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Prepared keys and values that were made side by side; each BHSK."""
        key_BSD, value_BSD = both_BSD.chunk(2, dim=-1)
        return self.score.prepare(self._split_heads(key_BSD)), self._split_heads(value_BSD)

    def attend(
        self,
        query_BHTK: Tensor,
        key_BHSK: Tensor,
        value_BHSK: Tensor,
        mask: Mask,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """What each query reads, heads joined and mapped back to the model width; BTD, or packed ND.

        The weights BHTS are appended to `record`, if there is one; for that rows have to be padded.
        """
        has_kernel = query_BHTK.is_cuda or not isinstance(mask, Tensor)
        if not has_kernel or not isinstance(self.score, ScaledDot) or record is not None:
            # Other scores, and recorded weights, need a mask of booleans.
            mixed_BHTK, weights_BHTS = attention(
                query_BHTK, key_BHSK, value_BHSK, shown(mask), self.score, self.dropout
            )
            if record is not None:
                record.append(weights_BHTS)
        else:
            dropout = self.dropout.probability if self.training else 0.0
            # The same, by a kernel for GPUs or for rows without padding.
            mixed_BHTK = fast_attention(query_BHTK, key_BHSK, value_BHSK, mask, dropout)
        output_BTD: Tensor = self.out_projection(mixed_BHTK.transpose(-3, -2).flatten(-2))
        return output_BTD

    def _split_heads(self, x_BTD: Tensor) -> Tensor:
        width = self.d_model // self.num_heads
        return x_BTD.view(*x_BTD.shape[:-1], self.num_heads, width).transpose(-3, -2)


@dataclass(frozen=True)
class Memory:
    """The encoder's output as one attention reads it."""

    key_BHSK: Tensor
    value_BHSK: Tensor
    mask: Mask

    def select(self, sentences: Tensor) -> "Memory":
        """The memory of only these padded sentences, by index and in that order."""
        assert isinstance(self.mask, Tensor), "a search has padded rows"
        return Memory(*(part.index_select(0, sentences) for part in (self.key_BHSK, self.value_BHSK, self.mask)))


def project_memories(attentions: Sequence[MultiHeadAttention], memory_BSD: Tensor, mask: Mask) -> list[Memory]:
    """The encoder's output as each of these attentions reads it, all by one mask."""
    maps = [attention.memory_projection() for attention in attentions]
    if isinstance(mask, Segments):  # packed, for GPUs
        projected = linear_maps(memory_BSD, maps)
    else:
        projected = tuple(linear(memory_BSD, weight, bias) for weight, bias in maps)
    return [Memory(*each.split_memory(both_BSD), mask) for each, both_BSD in zip(attentions, projected, strict=True)]
