"""Masks, attention and its score functions, multi-head attention (Vaswani et al. 2017, sec. 3.2).

B sentences  T query positions  S key positions  D model width  H heads  K width of a head  A inner width
Q width of queries, where it differs from that of keys  N packed queries  M packed keys
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.errors import TooLongError
from transformer_mt.model_settings import Score as ScoreName
from transformer_mt.models.dropout import Dropout
from transformer_mt.models.linear import Linear, linear
from transformer_mt.models.packed_attention import Segments, variable_length_attention
from transformer_mt.models.rows import RowMask, attention_over_rows
from transformer_mt.vocabulary import PAD


def padding_mask(tokens_BS: Tensor) -> Tensor:
    """True at real tokens, which may be attended to; B11S."""
    return (tokens_BS != PAD)[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True where the key's position is not after the query's; TT."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def attention(
    query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Tensor, score: "Score"
) -> tuple[Tensor, Tensor]:
    """softmax(score(Q, K)) V, BHTK, and the weights BHTS, whose rows sum to one.

    `mask` broadcasts to BHTS; True may be attended to, and each query needs one such key.
    """
    return mix(score(query_BHTK, score.prepare(key_BHSK)), value_BHSK, mask)


def scaled_dot_product(
    query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Tensor, dropout: Dropout | None = None
) -> tuple[Tensor, Tensor]:
    """Likewise softmax(Q K^T / sqrt(d_k)) V (eq. 1)."""
    return mix(scaled_dot(query_BHTK, key_BHSK), value_BHSK, mask, dropout)


def scaled_dot(query_BHTK: Tensor, key_BHSK: Tensor) -> Tensor:
    """Q K^T / sqrt(d_k); BHTS."""
    return query_BHTK / math.sqrt(query_BHTK.shape[-1]) @ key_BHSK.transpose(-1, -2)


def mix(scores_BHTS: Tensor, value_BHSK: Tensor, mask: Tensor, dropout: Dropout | None = None) -> tuple[Tensor, Tensor]:
    """The values weighted by the softmax of their scores, BHTK, and the weights. Uses up the scores."""
    weights_BHTS = scores_BHTS.masked_fill_(~mask, -math.inf).softmax(dim=-1)
    kept_BHTS = weights_BHTS if dropout is None else dropout(weights_BHTS)
    return kept_BHTS @ value_BHSK, weights_BHTS


class Score(nn.Module, ABC):
    """How well each query goes with each key: f(Q, K). Each head has its own weights, if there are any."""

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        """What can be computed of the keys once, for all queries to come; BHS and any width."""
        return key_BHSK

    @abstractmethod
    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        """Scores BHTS of queries and prepared keys."""


class Dot(Score):
    """Q K^T (Luong et al. 2015, eq. 8)."""

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        return query_BHTK @ prepared.transpose(-1, -2)


class ScaledDot(Score):
    """Q K^T / sqrt(d_k) (Vaswani et al. 2017, eq. 1)."""

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        return scaled_dot(query_BHTK, prepared)


class General(Score):
    """Q W K^T (Luong et al. 2015, eq. 8). Queries and keys may be of different widths."""

    def __init__(self, num_heads: int, query_width: int, key_width: int) -> None:
        super().__init__()
        self.weight_HQK = _weights(num_heads, query_width, key_width)

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        return key_BHSK @ self.weight_HQK.transpose(-1, -2)

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        return query_BHTK @ prepared.transpose(-1, -2)


class Additive(Score):
    """v^T tanh(W Q + U K) (Bahdanau et al. 2015, appendix A.1.2). Luong's concat with a tanh is the same."""

    def __init__(self, num_heads: int, query_width: int, key_width: int, inner_width: int) -> None:
        super().__init__()
        self.query_weight_HQA = _weights(num_heads, query_width, inner_width)
        self.key_weight_HKA = _weights(num_heads, key_width, inner_width)
        self.inner_weight_HA1 = _weights(num_heads, inner_width, 1)

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        return key_BHSK @ self.key_weight_HKA

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        query_BHT1A = (query_BHTK @ self.query_weight_HQA)[..., None, :]
        inner_BHTSA = (query_BHT1A + prepared[..., None, :, :]).tanh_()
        return (inner_BHTSA @ self.inner_weight_HA1[:, None])[..., 0]


class Concat(Score):
    """w^T [Q; K], a number a pair of positions: a linear map of both, joined.

    It is the sum of a number of the query and one of the key, and the softmax over keys does not see the first:
    every query gets the same weights.
    """

    def __init__(self, num_heads: int, query_width: int, key_width: int) -> None:
        super().__init__()
        self.query_weight_HQ1 = _weights(num_heads, query_width, 1)
        self.key_weight_HK1 = _weights(num_heads, key_width, 1)

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        return key_BHSK @ self.key_weight_HK1

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        return query_BHTK @ self.query_weight_HQ1 + prepared.transpose(-1, -2)


class FixedConcat(Score):
    """W [q; k_S] + b, where k_S is the last key: a row of W for each position, of which there is a fixed number.

    No score is of the key that it is the score of. Met in tutorials of PyTorch, and in no paper. It has one head.
    Behind the end of a shorter sentence its last key has to be repeated, lest padding be seen.
    """

    def __init__(self, query_width: int, key_width: int, num_positions: int) -> None:
        super().__init__()
        self.query_width = query_width
        self.joined = Linear(query_width + key_width, num_positions)
        nn.init.xavier_uniform_(self.joined.weight)
        nn.init.zeros_(self.joined.bias)

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        """The last key's part of each score; B1S1. Raises TooLongError if there are more keys than positions."""
        length, num_positions = key_BHSK.shape[2], len(self.joined.weight)
        if length > num_positions:
            raise TooLongError(
                f"a sentence of {length} positions, and attention of a fixed length (fixed_concat) has weights for "
                f"model.max_positions={num_positions}: shorten it, or train a model of more positions, or with "
                "another attention"
            )
        key_weight_SK = self.joined.weight[:length, self.query_width :]
        return linear(key_BHSK[:, :, -1:], key_weight_SK, self.joined.bias[:length]).transpose(-1, -2)

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        query_weight_SQ = self.joined.weight[: prepared.shape[2], : self.query_width]
        return query_BHTK @ query_weight_SQ.T + prepared.transpose(-1, -2)


def build_score(name: ScoreName, num_heads: int, query_width: int, key_width: int) -> Score:
    """For queries and keys of these widths in each head. Raises no error: `dot` needs equal widths."""
    match name:
        case "dot":
            return Dot()
        case "scaled_dot":
            return ScaledDot()
        case "general":
            return General(num_heads, query_width, key_width)
        case "additive":
            return Additive(num_heads, query_width, key_width, inner_width=key_width)
        case "concat":
            return Concat(num_heads, query_width, key_width)
        case _:
            assert_never(name)


def _weights(num_heads: int, width_in: int, width_out: int) -> nn.Parameter:
    """A matrix for each head."""
    weights = nn.Parameter(torch.empty(num_heads, width_in, width_out))
    for matrix in weights:
        nn.init.xavier_uniform_(matrix)
    return weights


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
