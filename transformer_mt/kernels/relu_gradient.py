"""The gradient of ReLU, and its sums over rows for the bias before it, in one pass over memory. For GPUs; in Triton.

Equals `linear.relu_gradient`. Importing this module needs Triton.

N rows  F output width  R rows of a tile  P programs
"""

import triton
import triton.language as tl
from torch import Tensor, empty_like, float32
from torch.library import triton_op, wrap_triton

ROWS, BLOCK = 8, 512  # of a tile
PROGRAMS = 128  # for a block of columns; each sums some rows. PyTorch's compiler adds up more sums by two kernels


@triton.jit
def _kernel(gradient, output, cut, sums, num_rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The gradients of some tiles of rows, and the sums over these rows."""
    program, num_programs = tl.program_id(0), tl.num_programs(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sum_RF = tl.zeros([ROWS, BLOCK], tl.float32)
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
    wrap_triton(_kernel)[(programs, triton.cdiv(width, BLOCK))](
        gradient_NF, output_NF, cut_NF, sums_PF, num_rows, width, ROWS=ROWS, BLOCK=BLOCK
    )
    return cut_NF, sums_PF
