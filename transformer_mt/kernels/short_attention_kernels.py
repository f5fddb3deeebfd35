"""The kernels of `short_attention` for GPUs: the formulas for one part of one sentence and one head, tile by tile.

After the end of its sentence, a tile has rows of zeros. No query sees such keys, and such queries write no output.

K width of a head  Q queries of a tile  S keys of a tile
"""

import math

import triton
import triton.language as tl

LOG2_E = tl.constexpr(math.log2(math.e))  # exp x = 2^(x log2 e), and powers of 2 are what a GPU computes


@triton.jit
def _rows(matrix, start, end, stride, K: tl.constexpr, TILE: tl.constexpr):
    """A tile of rows beginning at `start`, TILE by K; rows at or after `end` are 0."""
    row = start + tl.arange(0, TILE)
    return tl.load(matrix + row[:, None] * stride + tl.arange(0, K)[None, :], mask=row[:, None] < end, other=0.0)


@triton.jit
def _write_rows(matrix, tile, start, end, stride, K: tl.constexpr, TILE: tl.constexpr):
    row = start + tl.arange(0, TILE)
    pointer = matrix + row[:, None] * stride + tl.arange(0, K)[None, :]
    tl.store(pointer, tile.to(matrix.dtype.element_ty), mask=row[:, None] < end)


@triton.jit
def _visible(query_start, key_start, num_keys, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, TILE: tl.constexpr):
    """True where a query of a tile sees a key of the tile; QS."""
    query = query_start + tl.arange(0, TILE)[:, None]
    key = key_start + tl.arange(0, TILE)[None, :]
    visible = key < num_keys
    if CAUSAL:
        visible = visible & (key <= query)
    if WINDOW > 0:
        visible = visible & (key - query <= WINDOW) & (query - key <= WINDOW)
    return visible


@triton.jit
def _keys_seen(query_start, num_keys, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, TILE: tl.constexpr):
    """The first tile of keys that a tile of queries sees, and the end of the last one."""
    first, end = 0, num_keys
    if WINDOW > 0:
        first = tl.maximum(0, query_start - WINDOW) // TILE * TILE
        end = tl.minimum(num_keys, query_start + TILE + WINDOW)
    if CAUSAL:
        end = tl.minimum(num_keys, query_start + TILE)
    return first, end


@triton.jit
def _queries_seeing(key_start, num_queries, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, TILE: tl.constexpr):
    """The first tile of queries that see a tile of keys, and the end of the last one."""
    first, end = _keys_seen(key_start, num_queries, False, WINDOW, TILE)  # a window is symmetric
    if CAUSAL:
        first = key_start
    return first, end


@triton.jit
def _segment(offsets, segment):
    """The start of a segment, in 64 bits because it is multiplied by the size of a row, and its number of rows."""
    start = tl.load(offsets + segment)
    return start.to(tl.int64), tl.load(offsets + segment + 1) - start


@triton.jit
def forward_kernel(
    query,
    key,
    value,
    mixed,
    log_sum,
    query_offsets,
    key_offsets,
    query_stride,
    key_stride,
    value_stride,
    all_queries,
    mixed_stride,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SCALE: tl.constexpr,
    K: tl.constexpr,
    TILE: tl.constexpr,
    PART: tl.constexpr,
):
    """The outputs for one part of the queries of one segment, for one head."""
    segment, part, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_query, num_queries = _segment(query_offsets, segment)
    first_key, num_keys = _segment(key_offsets, segment)
    query += first_query * query_stride + head * K
    key += first_key * key_stride + head * K
    value += first_key * value_stride + head * K
    mixed += first_query * mixed_stride + head * K
    log_sum += head.to(tl.int64) * all_queries + first_query
    for query_start in range(part * PART, tl.minimum(part * PART + PART, num_queries), TILE):
        query_QK = _rows(query, query_start, num_queries, query_stride, K, TILE)
        top_Q = tl.full([TILE], -1e30, tl.float32)  # not -inf, because -inf - -inf is NaN
        sum_Q = tl.zeros([TILE], tl.float32)
        mixed_QK = tl.zeros([TILE, K], tl.float32)
        first, end = _keys_seen(query_start, num_keys, CAUSAL, WINDOW, TILE)
        for key_start in range(first, end, TILE):
            key_SK = _rows(key, key_start, num_keys, key_stride, K, TILE)
            value_SK = _rows(value, key_start, num_keys, value_stride, K, TILE)
            score_QS = tl.dot(query_QK, tl.trans(key_SK), input_precision="ieee") * (SCALE * LOG2_E)
            visible_QS = _visible(query_start, key_start, num_keys, CAUSAL, WINDOW, TILE)
            score_QS = tl.where(visible_QS, score_QS, float("-inf"))
            new_top_Q = tl.maximum(top_Q, tl.max(score_QS, 1))
            weight_QS = tl.exp2(score_QS - new_top_Q[:, None])
            shrink_Q = tl.exp2(top_Q - new_top_Q)
            sum_Q = sum_Q * shrink_Q + tl.sum(weight_QS, 1)
            mixed_QK *= shrink_Q[:, None]
            mixed_QK += tl.dot(weight_QS.to(value_SK.dtype), value_SK, input_precision="ieee")
            top_Q = new_top_Q
        _write_rows(mixed, mixed_QK / sum_Q[:, None], query_start, num_queries, mixed_stride, K, TILE)
        row = query_start + tl.arange(0, TILE)
        tl.store(log_sum + row, top_Q + tl.log2(sum_Q), mask=row < num_queries)


@triton.jit
def _weights_and_gradient(
    query_QK, key_SK, value_SK, gradient_QK, mixed_QK, log_sum_Q, visible_QS, SCALE: tl.constexpr
):
    """The weights p of a tile, and the gradient of its scores, p (dp - sum_k d_k o_k); both QS."""
    score_QS = tl.dot(query_QK, tl.trans(key_SK), input_precision="ieee") * (SCALE * LOG2_E)
    weight_QS = tl.where(visible_QS, tl.exp2(score_QS - log_sum_Q[:, None]), 0.0)
    weight_gradient_QS = tl.dot(gradient_QK, tl.trans(value_SK), input_precision="ieee")
    mean_Q = tl.sum(gradient_QK.to(tl.float32) * mixed_QK.to(tl.float32), 1)
    return weight_QS, weight_QS * (weight_gradient_QS - mean_Q[:, None])


@triton.jit
def backward_kernel(
    gradient,
    query,
    key,
    value,
    mixed,
    log_sum,
    query_gradient,
    key_gradient,
    value_gradient,
    query_offsets,
    key_offsets,
    gradient_stride,
    query_stride,
    key_stride,
    value_stride,
    all_queries,
    mixed_stride,
    written_stride,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SCALE: tl.constexpr,
    K: tl.constexpr,
    TILE: tl.constexpr,
    PART: tl.constexpr,
):
    """The gradients for one part of the keys, the values and the queries of one segment, for one head."""
    segment, part, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_query, num_queries = _segment(query_offsets, segment)
    first_key, num_keys = _segment(key_offsets, segment)
    gradient += first_query * gradient_stride + head * K
    query += first_query * query_stride + head * K
    key += first_key * key_stride + head * K
    value += first_key * value_stride + head * K
    mixed += first_query * mixed_stride + head * K
    log_sum += head.to(tl.int64) * all_queries + first_query
    query_gradient += first_query * written_stride + head * K
    key_gradient += first_key * written_stride + head * K
    value_gradient += first_key * written_stride + head * K

    for key_start in range(part * PART, tl.minimum(part * PART + PART, num_keys), TILE):
        key_SK = _rows(key, key_start, num_keys, key_stride, K, TILE)
        value_SK = _rows(value, key_start, num_keys, value_stride, K, TILE)
        key_gradient_SK = tl.zeros([TILE, K], tl.float32)
        value_gradient_SK = tl.zeros([TILE, K], tl.float32)
        first, end = _queries_seeing(key_start, num_queries, CAUSAL, WINDOW, TILE)
        for query_start in range(first, end, TILE):
            query_QK = _rows(query, query_start, num_queries, query_stride, K, TILE)
            gradient_QK = _rows(gradient, query_start, num_queries, gradient_stride, K, TILE)
            mixed_QK = _rows(mixed, query_start, num_queries, mixed_stride, K, TILE)
            row = query_start + tl.arange(0, TILE)
            log_sum_Q = tl.load(log_sum + row, mask=row < num_queries, other=0.0)
            visible_QS = _visible(query_start, key_start, num_keys, CAUSAL, WINDOW, TILE)
            weight_QS, score_gradient_QS = _weights_and_gradient(
                query_QK, key_SK, value_SK, gradient_QK, mixed_QK, log_sum_Q, visible_QS, SCALE
            )
            value_gradient_SK += tl.dot(tl.trans(weight_QS.to(gradient_QK.dtype)), gradient_QK, input_precision="ieee")
            key_gradient_SK += tl.dot(tl.trans(score_gradient_QS.to(query_QK.dtype)), query_QK, input_precision="ieee")
            if num_keys <= TILE:  # no query sees another tile
                query_gradient_QK = tl.dot(score_gradient_QS.to(key_SK.dtype), key_SK, input_precision="ieee") * SCALE
                _write_rows(query_gradient, query_gradient_QK, query_start, num_queries, written_stride, K, TILE)
        _write_rows(key_gradient, key_gradient_SK * SCALE, key_start, num_keys, written_stride, K, TILE)
        _write_rows(value_gradient, value_gradient_SK, key_start, num_keys, written_stride, K, TILE)

    end_query = tl.where(num_keys <= TILE, 0, tl.minimum(part * PART + PART, num_queries))
    for query_start in range(part * PART, end_query, TILE):
        query_QK = _rows(query, query_start, num_queries, query_stride, K, TILE)
        gradient_QK = _rows(gradient, query_start, num_queries, gradient_stride, K, TILE)
        mixed_QK = _rows(mixed, query_start, num_queries, mixed_stride, K, TILE)
        row = query_start + tl.arange(0, TILE)
        log_sum_Q = tl.load(log_sum + row, mask=row < num_queries, other=0.0)
        query_gradient_QK = tl.zeros([TILE, K], tl.float32)
        first, end = _keys_seen(query_start, num_keys, CAUSAL, WINDOW, TILE)
        for key_start in range(first, end, TILE):
            key_SK = _rows(key, key_start, num_keys, key_stride, K, TILE)
            value_SK = _rows(value, key_start, num_keys, value_stride, K, TILE)
            visible_QS = _visible(query_start, key_start, num_keys, CAUSAL, WINDOW, TILE)
            _, score_gradient_QS = _weights_and_gradient(
                query_QK, key_SK, value_SK, gradient_QK, mixed_QK, log_sum_Q, visible_QS, SCALE
            )
            query_gradient_QK += tl.dot(score_gradient_QS.to(key_SK.dtype), key_SK, input_precision="ieee")
        _write_rows(query_gradient, query_gradient_QK * SCALE, query_start, num_queries, written_stride, K, TILE)


@triton.jit
def self_backward_kernel(
    gradient,
    rows,
    mixed,
    log_sum,
    rows_gradient,
    offsets,
    gradient_stride,
    num_rows,
    width,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SCALE: tl.constexpr,
    K: tl.constexpr,
    TILE: tl.constexpr,
    PART: tl.constexpr,
):
    """The same if query, key and value of a word, each of `width`, are in one row; so are their gradients."""
    backward_kernel(
        gradient,
        rows,
        rows + width,
        rows + 2 * width,
        mixed,
        log_sum,
        rows_gradient,
        rows_gradient + width,
        rows_gradient + 2 * width,
        offsets,
        offsets,
        gradient_stride,
        3 * width,
        3 * width,
        3 * width,
        num_rows,
        width,
        3 * width,
        CAUSAL,
        WINDOW,
        SCALE,
        K,
        TILE,
        PART,
    )
