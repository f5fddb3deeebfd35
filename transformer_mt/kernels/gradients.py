"""Two gradients, each by one kernel: of ReLU, and of cross-entropy with respect to the logits. For GPUs; in Triton.

They equal `linear.relu_gradient` and `cross_entropy.softmax_and_gradient`. Importing this module needs Triton.

N rows, or target tokens  F output width  R rows of a tile  P programs  V vocabulary
"""

import triton
import triton.language as tl
from torch import Tensor, empty_like, float32
from torch.library import triton_op, wrap_triton

ROWS, COLUMNS = 8, 512  # of a tile
PROGRAMS = 128  # for a block of columns; each sums some rows. PyTorch's compiler adds up more sums by two kernels
BLOCK = 8192  # logits that a program of the softmax reads at a time


@triton.jit
def _relu_kernel(gradient, output, cut, sums, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The gradients of some tiles of rows, and the sums over these rows."""
    program, num_programs = tl.program_id(0), tl.num_programs(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    sum_RF = tl.zeros([ROWS, COLUMNS], tl.float32)
    for tile in range(program, tl.cdiv(num_rows, ROWS), num_programs):
        row_R = tile * ROWS + tl.arange(0, ROWS)
        place = row_R[:, None].to(tl.int64) * width + column[None, :]
        inside = (row_R[:, None] < num_rows) & (column[None, :] < width)
        gradient_RF = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        output_RF = tl.load(output + place, mask=inside, other=0.0).to(tl.float32)
        gradient_RF = tl.where(output_RF <= 0, 0.0, gradient_RF)  # NaN stays NaN, as in F.relu
        tl.store(cut + place, gradient_RF.to(cut.dtype.element_ty), mask=inside)
        sum_RF += gradient_RF
    tl.store(sums + program * width + column, tl.sum(sum_RF, 0), mask=column < width)


@triton_op("transformer_mt::relu_gradient", mutates_args=())
def relu_gradient_parts(gradient_NF: Tensor, output_NF: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient where the output is not 0, NF, and its sums over the rows of each program, fp32 PF."""
    gradient_NF, output_NF = gradient_NF.contiguous(), output_NF.contiguous()
    num_rows, width = gradient_NF.shape
    programs = max(1, min(PROGRAMS, triton.cdiv(num_rows, ROWS)))
    cut_NF, sums_PF = empty_like(gradient_NF), gradient_NF.new_empty(programs, width, dtype=float32)
    wrap_triton(_relu_kernel)[(programs, triton.cdiv(width, COLUMNS))](
        gradient_NF, output_NF, cut_NF, sums_PF, num_rows, width, ROWS=ROWS, COLUMNS=COLUMNS
    )
    return cut_NF, sums_PF


@triton.jit
def _softmax_kernel(logits, labels, log_sum, label_logit, size, stride, SMOOTHING: tl.constexpr, BLOCK: tl.constexpr):
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
    tensors = logits_NV, labels_N1.contiguous(), log_sum_N1, label_logit_N1
    _softmax_kernel[(num_rows,)](*tensors, size, logits_NV.stride(0), SMOOTHING=smoothing, BLOCK=BLOCK, num_warps=8)
    return log_sum_N1, label_logit_N1, logits_NV
