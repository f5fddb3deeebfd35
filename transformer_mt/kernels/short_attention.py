"""Attention of short sentences that are packed end to end, in tiles of a fitting size. For GPUs; in Triton.

FlashAttention computes 128 queries by 128 keys of one sentence at a time: a sentence of 25 words fills 4 % of such a
tile. Here a tile is 32 by 32, or 64 by 64 for longer sentences. Otherwise it is the same algorithm (Dao et al. 2022,
arXiv 2205.14135): the scores of a tile are never in memory, the softmax is accumulated over tiles, and the backward
pass computes the weights again, from the logarithm of the sum that the forward pass has saved. Sums have a fixed order,
so results can be repeated.

Equals the plain formula in `packed_attention.Segments.attend`. Importing this module needs Triton.

N packed queries  M packed keys  H heads  K width of a head
"""

import math
from collections.abc import Sequence
from typing import Any

import triton
from torch import Tensor, float32
from torch.library import triton_op, wrap_triton

from transformer_mt.kernels.short_attention_kernels import backward_kernel, forward_kernel, self_backward_kernel

# A side of a tile, if a batch has room for more than one sentence for each USUAL words, and else. Self-attention of
# 14 words on average takes 0.19 ms with 32 and 0.34 ms with 64 on an H200; of 27 words 0.22 and 0.19; of 70 0.30, 0.20.
SMALL_TILE, TILE, USUAL = 32, 64, 16
# Rows that a program writes. One program computes a complete sentence of up to 128 words. Several programs share a
# longer one, so that the GPU does not wait for the program with the longest sentence.
PART = 128


@triton_op("transformer_mt::short_attention", mutates_args=())
def short_attention(
    query_NHK: Tensor,
    key_MHK: Tensor,
    value_MHK: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    max_queries: int,
    max_keys: int,
    causal: bool,
    window: int,
) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, eq. 1) of each segment separately; NHK. Sums are in fp32.

    The other arguments are the fields of `Segments`. The second result is for the gradient: log2 sum_j exp z_j of each
    query, fp32 HN, over the scores z of the keys that it sees.
    """
    return _mixed((query_NHK, key_MHK, value_MHK), query_offsets, key_offsets, max_queries, causal, window)


@triton_op("transformer_mt::short_self_attention", mutates_args=())
def short_self_attention(
    rows_N3HK: Tensor, offsets: Tensor, max_length: int, causal: bool, window: int
) -> tuple[Tensor, Tensor]:
    """The same for queries, keys and values that are side by side in one tensor, the output of one product.

    Their gradients are also in one tensor, so the backward pass of that product need not copy three tensors into one.
    """
    return _mixed(rows_N3HK.unbind(1), offsets, offsets, max_length, causal, window)


def _mixed(
    sides: Sequence[Tensor], query_offsets: Tensor, key_offsets: Tensor, max_queries: int, causal: bool, window: int
) -> tuple[Tensor, Tensor]:
    """Returns what `short_attention` returns; `sides` are queries NHK, keys and values MHK."""
    sides = [_with_adjacent_heads(side) for side in sides]
    query_NHK, strides = sides[0], [side.stride(0) for side in sides]
    num_queries, num_heads, width = query_NHK.shape
    mixed_NHK = query_NHK.new_empty(query_NHK.shape)
    log_sum_HN = query_NHK.new_empty(num_heads, num_queries, dtype=float32)
    grid = (len(query_offsets) - 1, triton.cdiv(max_queries, PART), num_heads)
    sizes, constants = (num_queries, num_heads * width), _constants(query_NHK, query_offsets, causal, window)
    wrap_triton(forward_kernel)[grid](
        *sides, mixed_NHK, log_sum_HN, query_offsets, key_offsets, *strides, *sizes, **constants
    )
    return mixed_NHK, log_sum_HN


@triton_op("transformer_mt::short_attention_backward", mutates_args=())
def _backward(
    gradient_NHK: Tensor,
    query_NHK: Tensor,
    key_MHK: Tensor,
    value_MHK: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    mixed_NHK: Tensor,
    log_sum_HN: Tensor,
    max_queries: int,
    max_keys: int,
    causal: bool,
    window: int,
) -> tuple[Tensor, Tensor, Tensor]:
    inputs = [_with_adjacent_heads(x) for x in (gradient_NHK, query_NHK, key_MHK, value_MHK)]
    strides, gradients = [x.stride(0) for x in inputs], [x.new_empty(x.shape) for x in inputs[1:]]
    num_queries, num_heads, width = query_NHK.shape
    grid = (len(query_offsets) - 1, triton.cdiv(max(max_queries, max_keys), PART), num_heads)
    sizes = num_queries, num_heads * width, num_heads * width
    constants = _constants(query_NHK, query_offsets, causal, window)
    wrap_triton(backward_kernel)[grid](
        *inputs, mixed_NHK, log_sum_HN, *gradients, query_offsets, key_offsets, *strides, *sizes, **constants
    )
    return gradients[0], gradients[1], gradients[2]


@triton_op("transformer_mt::short_self_attention_backward", mutates_args=())
def _self_backward(
    gradient_NHK: Tensor,
    rows_N3HK: Tensor,
    offsets: Tensor,
    mixed_NHK: Tensor,
    log_sum_HN: Tensor,
    max_length: int,
    causal: bool,
    window: int,
) -> Tensor:
    gradient_NHK, rows_N3HK = _with_adjacent_heads(gradient_NHK), rows_N3HK.contiguous()
    num_rows, _, num_heads, width = rows_N3HK.shape
    rows_gradient_N3HK = rows_N3HK.new_empty(rows_N3HK.shape)
    grid = (len(offsets) - 1, triton.cdiv(max_length, PART), num_heads)
    tensors = gradient_NHK, rows_N3HK, mixed_NHK, log_sum_HN, rows_gradient_N3HK, offsets
    sizes, constants = (num_rows, num_heads * width), _constants(mixed_NHK, offsets, causal, window)
    wrap_triton(self_backward_kernel)[grid](*tensors, gradient_NHK.stride(0), *sizes, **constants)
    return rows_gradient_N3HK


def _keep(ctx: Any, inputs: tuple[object, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)), *output)
    ctx.sizes = tuple(x for x in inputs if not isinstance(x, Tensor))
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, gradient_NHK: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return (*_backward(gradient_NHK, *ctx.saved_tensors, *ctx.sizes), *[None] * 6)


def _self_gradients(ctx: Any, gradient_NHK: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return (_self_backward(gradient_NHK, *ctx.saved_tensors, *ctx.sizes), *[None] * 4)


short_attention.register_autograd(_gradients, setup_context=_keep)
short_self_attention.register_autograd(_self_gradients, setup_context=_keep)


def _constants(query_NHK: Tensor, offsets: Tensor, causal: bool, window: int) -> dict[str, Any]:
    """The constants for which a kernel is compiled."""
    num_queries, _, width = query_NHK.shape
    is_small = num_queries < USUAL * (len(offsets) - 1)
    num_warps = max(1, width // 32) if is_small else max(4, width // 16)  # as many as have registers for a tile's sums
    return {
        "CAUSAL": causal,
        "WINDOW": window,
        "SCALE": 1 / math.sqrt(width),
        "K": width,
        "TILE": SMALL_TILE if is_small else TILE,
        "PART": PART,
        "num_warps": num_warps,
        "num_stages": 1,
    }


def _with_adjacent_heads(x_NHK: Tensor) -> Tensor:
    """The same, with each row's heads side by side in memory. Rows may have gaps, as in a part of a larger product."""
    _, _, width = x_NHK.shape
    return x_NHK if x_NHK.stride()[1:] == (width, 1) else x_NHK.contiguous()
