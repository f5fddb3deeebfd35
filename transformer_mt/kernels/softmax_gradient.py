"""The gradient of cross-entropy with respect to the logits, in their place, by one kernel. For GPUs; in Triton.

Equals `cross_entropy.softmax_and_gradient`. Importing this module needs Triton.

N target tokens  V vocabulary
"""

import triton
import triton.language as tl
from torch import Tensor, float32

BLOCK = 8192  # logits that a program reads at a time


@triton.jit
def _kernel(logits, labels, log_sum, label_logit, size, stride, SMOOTHING: tl.constexpr, BLOCK: tl.constexpr):
    """One row: the first pass finds the maximum and the sum, the second one writes what it reads again from a cache."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row).to(tl.int32)
    logits += row * stride
    tl.store(label_logit + row, tl.load(logits + label).to(tl.float32))
    top, total = -float("inf"), 0.0
    for start in range(0, size, BLOCK):
        column = start + tl.arange(0, BLOCK)
        logit_V = tl.load(logits + column, mask=column < size, other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(logit_V, 0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(logit_V - new_top), 0)
        top = new_top
    log_total = top + tl.log(total)
    tl.store(log_sum + row, log_total)
    for start in range(0, size, BLOCK):
        column = start + tl.arange(0, BLOCK)
        logit_V = tl.load(logits + column, mask=column < size, other=0.0).to(tl.float32)
        gradient_V = tl.exp(logit_V - log_total) - tl.where(column == label, 1 - SMOOTHING, 0.0)
        tl.store(logits + column, gradient_V.to(logits.dtype.element_ty), mask=column < size)


def softmax_and_gradient_on_gpu(
    logits_NV: Tensor, labels_N1: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns what `softmax_and_gradient` returns; the gradient replaces the logits, in their type."""
    num_rows, size = logits_NV.shape
    log_sum_N1, label_logit_N1 = (logits_NV.new_empty(num_rows, 1, dtype=float32) for _ in range(2))
    _kernel[(num_rows,)](
        logits_NV,
        labels_N1.contiguous(),
        log_sum_N1,
        label_logit_N1,
        size,
        logits_NV.stride(0),
        SMOOTHING=smoothing,
        BLOCK=BLOCK,
        num_warps=8,
    )
    return log_sum_N1, label_logit_N1, logits_NV
