"""Attention to near words only, block by block: r n d operations instead of n^2 d (Vaswani et al. 2017, table 1).

It equals attention with a mask of all queries by all keys, which is `Near.whole`.

B sentences  T positions  H heads  K width of a head  N blocks  Q queries of a block  S keys that a block may see
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.kernels.row_attention import Rows

BLOCK = 32  # queries at least: products of fewer rows are slow


@dataclass(frozen=True)
class Near:
    """Each word of a padded row may see real words at most `window` positions away, and itself.

    A word sees itself so that padding far from any word sees something: the softmax of nothing is not a number, and
    its gradient would make all other gradients NaN.
    """

    real_BT: Tensor
    """bool."""
    window: int
    causal: bool
    """Whether it sees no word after itself."""

    def whole(self) -> Tensor:
        """True where a query may see a key; B1TT."""
        length = self.real_BT.shape[1]
        everything_TT = torch.ones(length, length, dtype=torch.bool, device=self.real_BT.device)
        near_TT = everything_TT.tril(0 if self.causal else self.window).triu(-self.window)
        itself_TT = everything_TT.tril().triu()
        return self.real_BT[:, None, None] & near_TT | itself_TT


@dataclass(frozen=True)
class NearRows:
    """The same of words that lie end to end, without padding."""

    rows: Rows
    near: Near


def near_attention(
    query_BHTK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, near: Near, dropout: Callable[[Tensor], Tensor]
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, eq. 1) of near words, with dropout of the weights; BHTK."""
    length, block = query_BHTK.shape[2], max(BLOCK, near.window)
    rest = -length % block
    B, H, _, K = query_BHTK.shape
    query_BHNQK = F.pad(query_BHTK, (0, 0, 0, rest)).view(B, H, -1, block, K)
    key_BHNKS, value_BHNKS = (_seen(x, near, block, rest) for x in (key_BHTK, value_BHTK))
    scores_BHNQS = query_BHNQK / math.sqrt(query_BHTK.shape[-1]) @ key_BHNKS
    weights_BHNQS = scores_BHNQS.masked_fill(~_mask(near, block, rest), -math.inf).softmax(dim=-1)
    mixed_BHNQK = dropout(weights_BHNQS) @ value_BHNKS.transpose(-1, -2)
    return mixed_BHNQK.flatten(2, 3)[:, :, :length]


def near_attention_of_rows(query_NHK: Tensor, key_NHK: Tensor, value_NHK: Tensor, mask: NearRows) -> Tensor:
    """The same of N words that lie end to end; NHK."""
    query_BHTK, key_BHTK, value_BHTK = (mask.rows.spread(x).transpose(0, 1) for x in (query_NHK, key_NHK, value_NHK))
    mixed_BHTK = near_attention(query_BHTK, key_BHTK, value_BHTK, mask.near, lambda weights: weights)
    return mask.rows.gather(mixed_BHTK.transpose(0, 1))


def _seen(x_BHTK: Tensor, near: Near, block: int, rest: int) -> Tensor:
    """The rows that each block may see, BHNKS; 0 beyond the ends."""
    after = 0 if near.causal else near.window
    padded = F.pad(x_BHTK, (0, 0, near.window, after + rest))
    return padded.unfold(2, near.window + block + after, block)


def _mask(near: Near, block: int, rest: int) -> Tensor:
    """True where a query may see a key; B1NQS."""
    after = 0 if near.causal else near.window
    real_BT = F.pad(near.real_BT, (near.window, after + rest))
    real_BNS = real_BT.unfold(1, near.window + block + after, block)
    query_Q1 = torch.arange(block, device=real_BT.device)[:, None]
    distance_QS = torch.arange(near.window + block + after, device=real_BT.device) - near.window - query_Q1
    near_QS = (distance_QS >= -near.window) & (distance_QS <= after)
    return (real_BNS[:, None, :, None] & near_QS) | (distance_QS == 0)
