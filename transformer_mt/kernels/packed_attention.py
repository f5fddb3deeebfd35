"""Attention of sentences that are packed end to end, and attention to near words only.

Both equal attention with a mask of all queries by all keys: `segments_mask` and `Near.whole`. For training on CPUs,
`RowMask.attend` computes packed sentences in padded rows, because there products of matrices of one shape are
fast. No other part of the model needs padding.

B sentences  T positions  H heads  K width of a head  N blocks, or packed queries  M packed keys
Q queries of a block  S keys of a row, or keys that a block may see  X blocks of all sentences
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer_mt.base.languages import PAD

BLOCK = 32  # the fewest queries of a block: products of fewer rows are slow
Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Near:
    """Each word of a padded row may see real words at most `window` positions away, and itself.

    Each position sees itself, so that padding sees something, too: a softmax over nothing has gradients of NaN.
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
        """The output BHTK of `attention`, which is called with blocks of queries and the keys near each block."""
        B, H, length, K = query_BHTK.shape
        block, before, after = max(BLOCK, self.window), self.window, 0 if self.causal else self.window
        rest, size = -length % block, before + block + after

        def seen(x_BHTK: Tensor) -> Tensor:
            """The rows that each block may see, XHSK; 0 before and after the sentence."""
            x_BHNKS = F.pad(x_BHTK, (0, 0, before, after + rest)).unfold(2, size, block)
            return x_BHNKS.permute(0, 2, 1, 4, 3).flatten(0, 1)

        place_S, place_Q = (torch.arange(number, device=query_BHTK.device) for number in (size, block))
        distance_QS = place_S - before - place_Q[:, None]
        near_QS = (distance_QS >= -before) & (distance_QS <= after)
        real_BNS = F.pad(self.real_BT, (before, after + rest)).unfold(1, size, block)
        mask_X1QS = (real_BNS[:, :, None, None] & near_QS | (distance_QS == 0)).flatten(0, 1)
        query_XHQK = F.pad(query_BHTK, (0, 0, 0, rest)).view(B, H, -1, block, K).transpose(1, 2).flatten(0, 1)
        mixed_XHQK = attention(query_XHQK, seen(key_BHTK), seen(value_BHTK), mask_X1QS)
        mixed_BNHQK = mixed_XHQK.view(B, -1, *mixed_XHQK.shape[1:])
        return mixed_BNHQK.transpose(1, 2).flatten(2, 3)[:, :, :length]


HAS_TRITON = find_spec("triton") is not None  # it comes with PyTorch for CUDA, except on Windows
SHORT = 256  # words of a segment, on average, up to which our kernels are faster than FlashAttention
SHORT_WIDTHS = (16, 32, 64, 128)  # of heads; a tile's sides are powers of two


@dataclass(frozen=True)
class Segments:
    """A mask for sentences that are packed end to end: a query sees the keys of its own segment.

    Segment i has the rows offsets[i] to offsets[i + 1]. Each row is in a segment, and a segment with queries has keys.
    """

    query_offsets: Tensor
    key_offsets: Tensor
    """Both int32 [segments + 1]."""
    max_queries: int
    """The most queries of a segment, or an upper bound; with a constant one, a compiled graph serves all batches."""
    max_keys: int
    causal: bool
    """Whether a query sees no key that comes after it. If so, queries and keys must have the same segments."""
    window: int = 0
    """If not 0, a query sees only this many keys on each side; queries and keys must have the same segments."""

    def attend(self, query_HNK: Tensor, key_HMK: Tensor, value_HMK: Tensor, _: object) -> Tensor:
        """softmax(Q K^T / sqrt(d_k)) V (eq. 1) for each segment separately, HNK.

        CUDA uses our kernels if segments are short on average, else FlashAttention (fp16 and bf16); CPUs the formula.
        """
        if not query_HNK.is_cuda:
            mask_NM = segments_mask(self, query_HNK.shape[1], key_HMK.shape[1])
            scores_HNM = query_HNK / math.sqrt(query_HNK.shape[-1]) @ key_HMK.transpose(-1, -2)
            return scores_HNM.masked_fill(~mask_NM, -math.inf).softmax(dim=-1) @ value_HMK
        query_NHK, key_MHK, value_MHK = (x.transpose(0, 1) for x in (query_HNK, key_HMK, value_HMK))
        if not are_short(self, query_NHK):
            return _flash_attention(query_NHK, key_MHK, value_MHK, self).transpose(0, 1)
        from transformer_mt.kernels.short_attention import short_attention

        offsets = self.query_offsets, self.key_offsets
        sizes = self.max_queries, self.max_keys, self.causal, self.window
        mixed_NHK: Tensor = short_attention(query_NHK, key_MHK, value_MHK, *offsets, *sizes)[0]
        return mixed_NHK.transpose(0, 1)


def packed_self_attention(rows_N3HK: Tensor, segments: Segments) -> Tensor:
    """`Segments.attend` of queries, keys and values that are in one tensor; NHK."""
    if rows_N3HK.is_cuda and are_short(segments, rows_N3HK[:, 0]):
        from transformer_mt.kernels.short_attention import short_self_attention

        sizes = segments.max_queries, segments.causal, segments.window
        mixed_NHK: Tensor = short_self_attention(rows_N3HK, segments.query_offsets, *sizes)[0]
        return mixed_NHK
    query_HNK, key_HNK, value_HNK = rows_N3HK.transpose(0, 2).unbind(1)
    return segments.attend(query_HNK, key_HNK, value_HNK, None).transpose(0, 1)


def are_short(segments: Segments, query_NHK: Tensor) -> bool:
    """Whether `short_attention` supports these heads, and the segments are short on average."""
    num_rows, _, width = query_NHK.shape
    return HAS_TRITON and width in SHORT_WIDTHS and num_rows <= SHORT * (len(segments.query_offsets) - 1)


def _flash_attention(query_NHK: Tensor, key_MHK: Tensor, value_MHK: Tensor, segments: Segments) -> Tensor:
    """The same, in tiles of 128 queries by 128 keys (Dao 2023, arXiv 2307.08691); NHK."""
    from torch.nn.attention.varlen import varlen_attn

    offsets, sizes = (segments.query_offsets, segments.key_offsets), (segments.max_queries, segments.max_keys)
    window = segments.window or -1, 0 if segments.causal else segments.window or -1
    mixed_NHK = varlen_attn(query_NHK, key_MHK, value_MHK, *offsets, *sizes, window_size=window)
    assert isinstance(mixed_NHK, Tensor), "it returns only the output, without statistics"
    return mixed_NHK


def segments_mask(segments: Segments, num_queries: int, num_keys: int) -> Tensor:
    """True where a query may see a key; NM."""
    query_N = torch.arange(num_queries, dtype=torch.int32, device=segments.query_offsets.device)
    key_M = torch.arange(num_keys, dtype=torch.int32, device=segments.key_offsets.device)
    # The segment of a row is the number of segments that begin before or at this row.
    query_segment_N = torch.searchsorted(segments.query_offsets, query_N, right=True)
    key_segment_M = torch.searchsorted(segments.key_offsets, key_M, right=True)
    mask_NM = query_segment_N[:, None] == key_segment_M
    if segments.causal:
        mask_NM &= key_M <= query_N[:, None]
    if segments.window:
        mask_NM &= (key_M - query_N[:, None]).abs() <= segments.window
    return mask_NM


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
        """softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, eq. 1) for each row separately, HNK.

        It and its gradients equal F.scaled_dot_product_attention(query, key, value, attn_mask=mask) for each sentence.
        """
        query_NHK, key_MHK, value_MHK = (x.transpose(0, 1) for x in (query_HNK, key_HMK, value_HMK))
        mixed_NHK: Tensor = _AttentionOverRows.apply(query_NHK, key_MHK, value_MHK, self)  # type: ignore[no-untyped-call]
        return mixed_NHK.transpose(0, 1)


class _AttentionOverRows(Function):
    """The gradient is written by hand: `spread` and `gather` are each other's gradient, and scores stay in place."""

    @staticmethod
    def forward(ctx: Any, query_NHK: Tensor, key_MHK: Tensor, value_MHK: Tensor, mask: RowMask) -> Tensor:
        query_HBTK = mask.queries.spread(query_NHK)
        key_HBSK, value_HBSK = mask.keys.spread(key_MHK), mask.keys.spread(value_MHK)
        scores_HBTS = query_HBTK @ key_HBSK.transpose(-1, -2)
        scale, bias = query_NHK.shape[-1] ** -0.5, mask.bias.to(scores_HBTS.dtype)
        torch.add(bias, scores_HBTS, alpha=scale, out=scores_HBTS)
        weights_HBTS = torch.softmax(scores_HBTS, dim=-1, out=scores_HBTS)
        ctx.save_for_backward(query_HBTK, key_HBSK, value_HBSK, weights_HBTS)
        ctx.mask, ctx.scale = mask, scale
        return mask.queries.gather(weights_HBTS @ value_HBSK)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NHK: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query_HBTK, key_HBSK, value_HBSK, weights_HBTS = ctx.saved_tensors
        queries, keys = ctx.mask.queries, ctx.mask.keys
        mixed_HBTK = queries.spread(gradient_NHK).masked_fill_(queries.padding_BT[..., None], 0.0)
        value_gradient_HBSK = weights_HBTS.transpose(-1, -2) @ mixed_HBTK
        weights_gradient_HBTS = mixed_HBTK @ value_HBSK.transpose(-1, -2)
        scores_HBTS = torch.ops.aten._softmax_backward_data(
            weights_gradient_HBTS, weights_HBTS, -1, weights_HBTS.dtype
        ).mul_(ctx.scale)
        query_gradient_HBTK = scores_HBTS @ key_HBSK
        key_gradient_HBSK = scores_HBTS.transpose(-1, -2) @ query_HBTK
        return (
            queries.gather(query_gradient_HBTK),
            keys.gather(key_gradient_HBSK),
            keys.gather(value_gradient_HBSK),
            None,
        )
