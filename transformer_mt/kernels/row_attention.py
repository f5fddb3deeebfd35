"""Attention of sentences that are packed end to end, computed in padded rows. For training on CPUs.

It and its gradients equal F.scaled_dot_product_attention(query, key, value, attn_mask=mask) for each sentence. On a
CPU, products of matrices of one shape are fast, so attention pads the rows. No other part of the model needs padding.

B sentences  T query positions  S key positions  N all queries  M all keys  H heads  K width of a head
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from transformer_mt.base.languages import PAD


@dataclass(frozen=True)
class Rows:
    """The places of the N tokens, in padded rows and packed end to end."""

    padding_BT: Tensor
    """bool."""
    place_BT: Tensor
    """int64: the place of each token among the N; any number at padding."""
    place_N: Tensor
    """int64: the place of each token among the BT, row after row."""

    @classmethod
    def of(cls, tokens_BT: Tensor) -> "Rows":
        real_BT = tokens_BT != PAD
        place_BT = real_BT.flatten().cumsum(dim=0).sub_(1).clamp_min_(0).view_as(tokens_BT)
        return cls(~real_BT, place_BT, real_BT.flatten().nonzero()[:, 0])

    def spread(self, x_NHK: Tensor) -> Tensor:
        """Copy x into padded rows, HBTK; any finite number at padding."""
        _, H, K = x_NHK.shape
        heads_H11 = torch.arange(H, device=x_NHK.device)[:, None, None]
        index_HBT = self.place_BT * H + heads_H11
        return x_NHK.reshape(-1, K).index_select(0, index_HBT.flatten()).view(*index_HBT.shape, K)

    def gather(self, x_HBTK: Tensor) -> Tensor:
        """Copy x from padded rows to packed tokens, NHK."""
        H, B, T, K = x_HBTK.shape
        index_NH = self.place_N[:, None] + torch.arange(H, device=x_HBTK.device) * (B * T)
        return x_HBTK.reshape(-1, K).index_select(0, index_NH.flatten()).view(-1, H, K)


@dataclass(frozen=True)
class RowMask:
    """A mask: a query may see some of the keys of its own row."""

    queries: Rows
    keys: Rows
    bias: Tensor
    """Added to scores: 0 where the query may see the key, else -inf; broadcasts to BTS."""

    @classmethod
    def of(cls, queries: Rows, keys: Rows, mask: Tensor) -> "RowMask":
        """Make it from a bool mask, True where the query may see the key; it broadcasts to BTS."""
        bias = torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -math.inf)
        return cls(queries, keys, bias)

    def attend(self, query_HNK: Tensor, key_HMK: Tensor, value_HMK: Tensor, _: object) -> Tensor:
        """Eq. 1 for each row separately, HNK."""
        query_NHK, key_MHK, value_MHK = (x.transpose(0, 1) for x in (query_HNK, key_HMK, value_HMK))
        return attention_over_rows(query_NHK, key_MHK, value_MHK, self).transpose(0, 1)


def attention_over_rows(query_NHK: Tensor, key_MHK: Tensor, value_MHK: Tensor, mask: RowMask) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, eq. 1) for each row separately, NHK."""
    mixed_NHK: Tensor = _AttentionOverRows.apply(query_NHK, key_MHK, value_MHK, mask)  # type: ignore[no-untyped-call]
    return mixed_NHK


class _AttentionOverRows(Function):
    """The gradient is written by hand: `spread` and `gather` are each other's gradient, and scores stay in place."""

    @staticmethod
    def forward(ctx: Any, query_NHK: Tensor, key_MHK: Tensor, value_MHK: Tensor, mask: RowMask) -> Tensor:
        query_HBTK = mask.queries.spread(query_NHK)
        key_HBSK, value_HBSK = mask.keys.spread(key_MHK), mask.keys.spread(value_MHK)
        scores_HBTS = product(query_HBTK, key_HBSK.transpose(-1, -2))
        scale, bias = query_NHK.shape[-1] ** -0.5, mask.bias.to(scores_HBTS.dtype)
        torch.add(bias, scores_HBTS, alpha=scale, out=scores_HBTS)
        weights_HBTS = torch.softmax(scores_HBTS, dim=-1, out=scores_HBTS)
        ctx.save_for_backward(query_HBTK, key_HBSK, value_HBSK, weights_HBTS)
        ctx.mask, ctx.scale = mask, scale
        return mask.queries.gather(product(weights_HBTS, value_HBSK))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NHK: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query_HBTK, key_HBSK, value_HBSK, weights_HBTS = ctx.saved_tensors
        queries, keys = ctx.mask.queries, ctx.mask.keys
        mixed_HBTK = queries.spread(gradient_NHK).masked_fill_(queries.padding_BT[..., None], 0.0)
        value_gradient_HBSK = product(weights_HBTS.transpose(-1, -2), mixed_HBTK)
        weights_gradient_HBTS = product(mixed_HBTK, value_HBSK.transpose(-1, -2))
        scores_HBTS = torch.ops.aten._softmax_backward_data(
            weights_gradient_HBTS, weights_HBTS, -1, weights_HBTS.dtype
        ).mul_(ctx.scale)
        query_gradient_HBTK = product(scores_HBTS, key_HBSK)
        key_gradient_HBSK = product(scores_HBTS.transpose(-1, -2), query_HBTK)
        return (
            queries.gather(query_gradient_HBTK),
            keys.gather(key_gradient_HBSK),
            keys.gather(value_gradient_HBSK),
            None,
        )


def product(left: Tensor, right: Tensor) -> Tensor:
    """The product of the matrices in the last two axes."""
    return torch.bmm(left.flatten(0, 1), right.flatten(0, 1)).view(*left.shape[:3], right.shape[3])
