"""Multi-head attention (Vaswani et al. 2017, sec. 3.2.2).

B sentences  T query positions  S key positions  D model width  H heads  K width of a head  N packed queries
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.models.attention import Padded, Sight, attention
from transformer_mt.models.scores import build_score
from transformer_mt.settings.model import SCALED_DOT, ScoreChoice


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each on its own projection of queries, keys and values (sec. 3.2.2)."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0, score: ScoreChoice = SCALED_DOT) -> None:
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.score = build_score(score, num_heads, d_model // num_heads, d_model // num_heads)
        self.is_scaled_dot = score.is_scaled_dot
        self.dropout = nn.Dropout(dropout)
        self.record: list[Tensor] | None = None  # see `recorded`
        # Its rows make queries, keys and values. One matrix, so that self-attention is one product.
        self.in_projection = nn.Linear(d_model, 3 * d_model)
        self.out_projection = nn.Linear(d_model, d_model)
        for block_DD in (*self.in_projection.weight.chunk(3), self.out_projection.weight):
            nn.init.xavier_uniform_(block_DD)
        nn.init.zeros_(self.in_projection.bias)
        nn.init.zeros_(self.out_projection.bias)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, prepared keys and values of the same positions; each BHTK, or HNK of packed ND."""
        query_BTD, key_BTD, value_BTD = self.in_projection(x_BTD).chunk(3, dim=-1)
        key_BHTK = self.score.prepare(self._split_heads(key_BTD))
        return self._split_heads(query_BTD), key_BHTK, self._split_heads(value_BTD)

    def forward(self, x_BTD: Tensor, see: Sight) -> Tensor:
        """Self-attention: what each position reads of all that it may see; BTD, or packed ND."""
        return self.attend(*self.project(x_BTD), see)

    def read(self, x_BTD: Tensor, memory: "Memory") -> Tensor:
        """Encoder-decoder attention: what each position reads of the encoder's output."""
        return self.attend(self.project_query(x_BTD), memory.key_BHSK, memory.value_BHSK, memory.see)

    def project_query(self, x_BTD: Tensor) -> Tensor:
        """Only the queries; BHTK."""
        return self._split_heads(self.project_rows(x_BTD, slice(self.d_model)))

    def memory(self, memory_BSD: Tensor, see: Sight) -> "Memory":
        """The encoder's output as this attention reads it."""
        return self.split_memory(self.project_rows(memory_BSD, slice(self.d_model, None)), see)

    def split_memory(self, both_BSD: Tensor, see: Sight) -> "Memory":
        """The memory whose keys and values were made side by side."""
        key_BSD, value_BSD = both_BSD.chunk(2, dim=-1)
        return Memory(self.score.prepare(self._split_heads(key_BSD)), self._split_heads(value_BSD), see)

    def project_rows(self, x_BTD: Tensor, rows: slice) -> Tensor:
        """What these rows of the matrix make: queries, keys and values have D rows each (exchanged in fast.py)."""
        return F.linear(x_BTD, self.in_projection.weight[rows], self.in_projection.bias[rows])

    def attend(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, see: Sight) -> Tensor:
        """What each query reads of these prepared keys, heads joined and mapped back to the model width; BTD."""
        mixed_BHTK = see.attend(query_BHTK, key_BHSK, value_BHSK, self.attention)
        output_BTD: Tensor = self.out_projection(mixed_BHTK.transpose(-3, -2).flatten(-2))
        return output_BTD

    def attention(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Tensor) -> Tensor:
        """Eq. 1, BHTK; with `recorded`, the weights BHTS are kept."""
        mixed_BHTK, weights_BHTS = attention(query_BHTK, key_BHSK, value_BHSK, mask, self.score, self.dropout)
        if self.record is not None:
            self.record.append(weights_BHTS)
        return mixed_BHTK

    def _split_heads(self, x_BTD: Tensor) -> Tensor:
        width = self.d_model // self.num_heads
        return x_BTD.view(*x_BTD.shape[:-1], self.num_heads, width).transpose(-3, -2)


@dataclass(frozen=True)
class Memory:
    """The encoder's output as one attention reads it."""

    key_BHSK: Tensor
    value_BHSK: Tensor
    see: Sight

    def select(self, sentences: Tensor) -> "Memory":
        """The memory of only these padded sentences, by index and in that order."""
        assert isinstance(self.see, Padded), "a search has padded rows"
        parts = (self.key_BHSK, self.value_BHSK, self.see.mask)  # contiguous copies, which later steps read faster
        key_BHSK, value_BHSK, mask_B11S = (part.index_select(0, sentences) for part in parts)
        return Memory(key_BHSK, value_BHSK, Padded(mask_B11S))


@contextmanager
def recorded(attentions: Sequence[MultiHeadAttention]) -> Iterator[list[Tensor]]:
    """Keep the weights BHTS of these attentions to padded rows, a tensor for each use; in one thread at a time."""
    weights: list[Tensor] = []
    for each in attentions:
        each.record = weights
    try:
        yield weights
    finally:
        for each in attentions:
            each.record = None
