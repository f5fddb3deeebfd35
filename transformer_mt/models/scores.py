"""Score functions: how well a query matches a key (Luong et al. 2015, Bahdanau et al. 2015).

B sentences  T query positions  S key positions  H heads  K width of a head  A inner width, or width of prepared keys
Q width of queries, where it differs from that of keys
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.base.errors import TranslationError
from transformer_mt.settings.model_settings import ScoreChoice


class Score(nn.Module, ABC):
    """How well each query matches each key: f(Q, K). If a score has weights, each head has its own."""

    reads_last_key = False
    """Whether the score reads only the last key. The caller then puts the last word's key there, not padding."""

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        """Compute once what depends only on the keys, for all later queries; BHS and any width."""
        return key_BHSK

    @abstractmethod
    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        """Scores BHTS of queries and prepared keys."""


class Dot(Score):
    """Q K^T (Luong et al. 2015, sec. 3.1)."""

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        return query_BHTK @ prepared.transpose(-1, -2)


class ScaledDot(Score):
    """Q K^T / sqrt(d_k) (Vaswani et al. 2017, eq. 1)."""

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        return query_BHTK / math.sqrt(query_BHTK.shape[-1]) @ prepared.transpose(-1, -2)


class Scaled(Score):
    """Another score, divided by sqrt(d_k), where d_k is the width of the keys."""

    def __init__(self, score: Score, key_width: int) -> None:
        super().__init__()
        self.score, self.root = score, math.sqrt(key_width)
        self.reads_last_key = score.reads_last_key

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        return self.score.prepare(key_BHSK)

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        scores_BHTS: Tensor = self.score(query_BHTK, prepared)
        return scores_BHTS / self.root


class General(Dot):
    """Q W K^T (Luong et al. 2015, sec. 3.1). Queries and keys may be of different widths."""

    def __init__(self, num_heads: int, query_width: int, key_width: int) -> None:
        super().__init__()
        self.weight_HQK = _weights(num_heads, query_width, key_width)

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        return _by_head(key_BHSK, self.weight_HQK.transpose(-1, -2))


class Additive(Score):
    """v^T tanh(W Q + U K) (Bahdanau et al. 2015, appendix A.1.2). Luong's concat with a tanh is the same.

    With `biased` it is v^T tanh(W Q + U K + b), like a linear layer with a bias that reads [Q; K].
    """

    def __init__(self, num_heads: int, query_width: int, key_width: int, inner_width: int, biased: bool) -> None:
        super().__init__()
        self.bias_H1A = nn.Parameter(torch.zeros(num_heads, 1, inner_width)) if biased else None
        self.query_weight_HQA = _weights(num_heads, query_width, inner_width)
        self.key_weight_HKA = _weights(num_heads, key_width, inner_width)
        self.inner_weight_HA1 = _weights(num_heads, inner_width, 1)

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        inner_BHSA = _by_head(key_BHSK, self.key_weight_HKA)
        return inner_BHSA if self.bias_H1A is None else inner_BHSA + self.bias_H1A

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        query_BHT1A = _by_head(query_BHTK, self.query_weight_HQA)[..., None, :]
        inner_BHTSA = (query_BHT1A + prepared[..., None, :, :]).tanh_()
        return (inner_BHTSA @ self.inner_weight_HA1[:, None])[..., 0]


class Concat(Score):
    """w^T [Q; K]: a linear map of query and key, joined, to one number.

    A number of the query plus one of the key: the softmax cancels the first, so every query gets the same weights.
    """

    def __init__(self, num_heads: int, query_width: int, key_width: int) -> None:
        super().__init__()
        self.query_weight_HQ1 = _weights(num_heads, query_width, 1)
        self.key_weight_HK1 = _weights(num_heads, key_width, 1)

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        return _by_head(key_BHSK, self.key_weight_HK1)

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        return _by_head(query_BHTK, self.query_weight_HQ1) + prepared.transpose(-1, -2)


class Location(Score):
    """W q, where W has a row for each of a fixed number of positions (Luong et al. 2015, eq. 8). It has one head.

    The score does not read the keys: a query chooses positions and does not know which words are there.
    """

    def __init__(self, query_width: int, num_positions: int) -> None:
        super().__init__()
        self.weight_SQ = nn.Parameter(torch.empty(num_positions, query_width))
        nn.init.xavier_uniform_(self.weight_SQ)

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        """Keeps only the number of keys; BHS0. Raises TranslationError if there are more keys than positions."""
        _check_length(key_BHSK.shape[2], len(self.weight_SQ), "attention by location")
        return key_BHSK[..., :0]

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        return query_BHTK @ self.weight_SQ[: prepared.shape[2]].T


class FixedConcat(Score):
    """W [q; k_S] + b, where k_S is the last key and W has a row for each of a fixed number of positions.

    So a key's score does not depend on that key. PyTorch tutorials have this score, but no paper has. It has one head.
    """

    reads_last_key = True

    def __init__(self, query_width: int, key_width: int, num_positions: int) -> None:
        super().__init__()
        self.query_width = query_width
        self.joined = nn.Linear(query_width + key_width, num_positions)
        nn.init.xavier_uniform_(self.joined.weight)
        nn.init.zeros_(self.joined.bias)

    def prepare(self, key_BHSK: Tensor) -> Tensor:
        """The last key's part of each score; B1S1. Raises TranslationError if there are more keys than positions."""
        length = key_BHSK.shape[2]
        _check_length(length, len(self.joined.weight), "attention of a fixed length (fixed_concat)")
        key_weight_SK = self.joined.weight[:length, self.query_width :]
        return F.linear(key_BHSK[:, :, -1:], key_weight_SK, self.joined.bias[:length]).transpose(-1, -2)

    def forward(self, query_BHTK: Tensor, prepared: Tensor) -> Tensor:
        query_weight_SQ = self.joined.weight[: prepared.shape[2], : self.query_width]
        return query_BHTK @ query_weight_SQ.T + prepared.transpose(-1, -2)


class FixedLengthAttention(nn.Module):
    """Attention by FixedConcat, as in tutorials: a linear map reads the query, joined with the output of attention."""

    def __init__(
        self, query_width: int, key_width: int, num_positions: int, value_width: int, output_width: int
    ) -> None:
        super().__init__()
        self.score = FixedConcat(query_width, key_width, num_positions)
        self.out_projection = nn.Linear(query_width + value_width, output_width)

    def forward(self, query_BTQ: Tensor, key_BUK: Tensor, value_BSV: Tensor) -> tuple[Tensor, Tensor]:
        """The output for the last query, B1O, and the weights of the values, BS, which sum to one.

        Only the last of the U keys is used. Raises TranslationError if there are more values than num_positions.
        """
        query_B11Q, key_B11K = query_BTQ[:, None, -1:], key_BUK[:, None, -1:]
        length = value_BSV.shape[1]
        everywhere_S = torch.ones(length, dtype=torch.bool, device=value_BSV.device)
        prepared_B1S1 = self.score.prepare(key_B11K.expand(-1, -1, length, -1))
        mixed_B11V, weights_B11S = attention_by(self.score, query_B11Q, prepared_B1S1, value_BSV[:, None], everywhere_S)
        joined_B1I = torch.cat([query_B11Q, mixed_B11V], dim=-1)[:, 0]
        return self.out_projection(joined_B1I), weights_B11S[:, 0, 0]


@dataclass(frozen=True)
class Annotations:
    """What the decoder sees of the source; Bahdanau et al. call it annotations. There is one head."""

    prepared_B1SA: Tensor
    """The keys, prepared by the score."""
    value_B1SD: Tensor
    mask_B11S: Tensor

    def keep(self, sentences: Tensor) -> "Annotations":
        parts = (self.prepared_B1SA, self.value_B1SD, self.mask_B11S)
        return Annotations(*(part.index_select(0, sentences) for part in parts))


def attention_by(
    score: Score, query_BHTK: Tensor, prepared: Tensor, value_BHSK: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Attention with any score to keys that the score has prepared: BHTK, and the weights BHTS (rows sum to one)."""
    weights_BHTS = score(query_BHTK, prepared).masked_fill_(~mask, -math.inf).softmax(dim=-1)
    return weights_BHTS @ value_BHSK, weights_BHTS


def build_score(choice: ScoreChoice, num_heads: int, query_width: int, key_width: int) -> Score:
    """The score for queries and keys of these widths in each head; dot and scaled_dot need equal widths."""
    score: Score
    match choice.name:
        case "dot":
            score = Dot()
        case "scaled_dot":
            score = ScaledDot()
        case "general":
            score = General(num_heads, query_width, key_width)
        case "additive":
            score = Additive(num_heads, query_width, key_width, inner_width=key_width, biased=choice.biased)
        case "concat":
            score = Concat(num_heads, query_width, key_width)
        case _:
            assert_never(choice.name)
    return Scaled(score, key_width) if choice.scaled else score


def _check_length(length: int, num_positions: int, attention: str) -> None:
    if length > num_positions:
        raise TranslationError(
            f"a sentence has {length} positions, but {attention} has weights for only "
            f"model.max_positions={num_positions}: shorten it, or train with more positions or another attention"
        )


def _by_head(x_BHTK: Tensor, weight_HKA: Tensor) -> Tensor:
    """Each head's product with its own matrix, BHTA. (x @ weight would copy the matrices for each sentence.)"""
    return torch.einsum("...htk,hka->...hta", x_BHTK, weight_HKA)


def _weights(num_heads: int, width_in: int, width_out: int) -> nn.Parameter:
    weights = nn.Parameter(torch.empty(num_heads, width_in, width_out))
    for matrix in weights:
        nn.init.xavier_uniform_(matrix)
    return weights
