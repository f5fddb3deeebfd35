"""Attention to near words only, block by block: r n d operations instead of n^2 d (Vaswani et al. 2017, table 1).

It equals attention with a mask of all queries by all keys, which is `Near.whole`.

B sentences  T positions  H heads  K width of a head  N blocks  Q queries of a block  S keys that a block may see
X blocks of all sentences
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 32  # queries at least: products of fewer rows are slow
Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


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

    def attend(self, query_BHTK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, attention: Attention) -> Tensor:
        """What each query reads by this attention, BHTK: it is used on each block of queries and the keys near it."""
        B, H, length, K = query_BHTK.shape
        block = max(BLOCK, self.window)
        rest = -length % block
        query_BHNQK = F.pad(query_BHTK, (0, 0, 0, rest)).view(B, H, -1, block, K)
        key_XHSK, value_XHSK = (_seen(x_BHTK, self, block, rest) for x_BHTK in (key_BHTK, value_BHTK))
        mask_B1NQS = _mask(self, block, rest)
        mixed_XHQK = attention(
            query_BHNQK.transpose(1, 2).flatten(0, 1), key_XHSK, value_XHSK, mask_B1NQS.transpose(1, 2).flatten(0, 1)
        )
        mixed_BNHQK = mixed_XHQK.view(B, -1, *mixed_XHQK.shape[1:])
        return mixed_BNHQK.transpose(1, 2).flatten(2, 3)[:, :, :length]


def _seen(x_BHTK: Tensor, near: Near, block: int, rest: int) -> Tensor:
    """The rows that each block may see, XHSK; 0 beyond the ends."""
    after = 0 if near.causal else near.window
    padded = F.pad(x_BHTK, (0, 0, near.window, after + rest))
    x_BHNKS = padded.unfold(2, near.window + block + after, block)
    return x_BHNKS.permute(0, 2, 1, 4, 3).flatten(0, 1)


def _mask(near: Near, block: int, rest: int) -> Tensor:
    """True where a query may see a key; B1NQS."""
    after = 0 if near.causal else near.window
    real_BT = F.pad(near.real_BT, (near.window, after + rest))
    real_BNS = real_BT.unfold(1, near.window + block + after, block)
    query_Q1 = torch.arange(block, device=real_BT.device)[:, None]
    distance_QS = torch.arange(near.window + block + after, device=real_BT.device) - near.window - query_Q1
    near_QS = (distance_QS >= -near.window) & (distance_QS <= after)
    return (real_BNS[:, None, :, None] & near_QS) | (distance_QS == 0)
