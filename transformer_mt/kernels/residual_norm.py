"""Dropout, residual sum and layer norm of packed sentences in one pass over memory. For GPUs; in Triton.

PyTorch's compiler makes one kernel of them, too, but of the four numbers that a draw gives, it uses one; and its kernel
for the gradients reads one row after the other. Here each draw serves four elements. The mask of the dropout is never
in memory: the gradient draws it again.

Equals `models.transformer.Residual` with norm=post. It also adds the bias of the sub-layer's last product, whose
gradient then needs no pass over memory of its own. In bf16 training only products are bf16: the output is there twice,
in fp32 for the next sum, and in bf16 for the next product. For the gradient, the normed sum is kept in bf16.
Importing this module needs Triton.

N packed tokens  D model width  R rows of a tile
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

ROWS = 2  # of a tile
PROGRAMS = 1056  # that share the rows of a gradient, 8 for each multiprocessor of an H100: each sums its own rows


@triton.jit
def _kept(seed, row_R, DROPOUT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """True for the elements of a tile that dropout keeps; each draw serves four neighbours in a row."""
    draw = row_R[:, None] * (BLOCK // 4) + tl.arange(0, BLOCK // 4)[None, :]
    a, b, c, d = tl.rand4x(seed, draw)
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [ROWS, BLOCK]) >= DROPOUT


@triton.jit
def _normed(sum_RD, is_column, width, EPS: tl.constexpr):
    """(sum - mean) / deviation, RD, and 1 / deviation, R."""
    mean_R = tl.sum(sum_RD, 1) / width
    centred_RD = tl.where(is_column, sum_RD - mean_R[:, None], 0.0)
    scale_R = tl.rsqrt(tl.sum(centred_RD * centred_RD, 1) / width + EPS)
    return centred_RD * scale_R[:, None], scale_R


@triton.jit
def forward_kernel(
    x,
    sublayer,
    sublayer_bias,
    weight,
    bias,
    seed,
    output,
    rounded,
    normed,
    scale,
    number,
    num_rows,
    width,
    EPS: tl.constexpr,
    DROPOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A tile of rows: the output, and for the gradient the results of `_normed`."""
    row_R = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    place = row_R[:, None].to(tl.int64) * width + column
    is_column = column < width
    inside = (row_R[:, None] < num_rows) & is_column
    added = tl.load(sublayer + place, mask=inside, other=0.0).to(tl.float32)
    added += tl.load(sublayer_bias + column, mask=is_column, other=0.0)
    sum_RD = tl.load(x + place, mask=inside, other=0.0)
    if DROPOUT > 0:
        added = tl.where(_kept(tl.load(seed) + number, row_R, DROPOUT, ROWS, BLOCK), added * (1 / (1 - DROPOUT)), 0.0)
    normed_RD, scale_R = _normed(sum_RD + added, is_column, width, EPS)
    weight_D = tl.load(weight + column, mask=is_column, other=0.0)
    bias_D = tl.load(bias + column, mask=is_column, other=0.0)
    output_RD = normed_RD * weight_D + bias_D
    tl.store(output + place, output_RD, mask=inside)
    tl.store(rounded + place, output_RD.to(rounded.dtype.element_ty), mask=inside)
    tl.store(normed + place, normed_RD.to(normed.dtype.element_ty), mask=inside)
    tl.store(scale + row_R, scale_R, mask=row_R < num_rows)


@triton.jit
def backward_kernel(
    gradient,
    rounded_gradient,
    normed,
    scale,
    weight,
    seed,
    x_gradient,
    sublayer_gradient,
    sums,
    number,
    num_rows,
    width,
    DROPOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of some tiles of rows, and the sums over these rows for the gradients of biases and weight."""
    program, num_programs = tl.program_id(0), tl.num_programs(0)
    column = tl.arange(0, BLOCK)[None, :]
    is_column = column < width
    weight_D = tl.load(weight + column, mask=is_column, other=0.0)
    weight_sum_RD = tl.zeros([ROWS, BLOCK], tl.float32)
    bias_sum_RD = tl.zeros([ROWS, BLOCK], tl.float32)
    sublayer_sum_RD = tl.zeros([ROWS, BLOCK], tl.float32)
    for tile in range(program, tl.cdiv(num_rows, ROWS), num_programs):
        row_R = tile * ROWS + tl.arange(0, ROWS)
        place = row_R[:, None].to(tl.int64) * width + column
        inside = (row_R[:, None] < num_rows) & is_column
        gradient_RD = tl.load(gradient + place, mask=inside, other=0.0)
        gradient_RD += tl.load(rounded_gradient + place, mask=inside, other=0.0).to(tl.float32)
        normed_RD = tl.load(normed + place, mask=inside, other=0.0).to(tl.float32)
        scale_R = tl.load(scale + row_R, mask=row_R < num_rows, other=0.0)
        weight_sum_RD += gradient_RD * normed_RD
        bias_sum_RD += gradient_RD
        weighted_RD = gradient_RD * weight_D
        mean_R = tl.sum(weighted_RD, 1) / width
        slope_R = tl.sum(weighted_RD * normed_RD, 1) / width
        sum_gradient_RD = (weighted_RD - mean_R[:, None] - normed_RD * slope_R[:, None]) * scale_R[:, None]
        tl.store(x_gradient + place, sum_gradient_RD, mask=inside)
        if DROPOUT > 0:
            kept_RD = _kept(tl.load(seed) + number, row_R, DROPOUT, ROWS, BLOCK)
            sum_gradient_RD = tl.where(kept_RD, sum_gradient_RD * (1 / (1 - DROPOUT)), 0.0)
        sublayer_sum_RD += sum_gradient_RD
        tl.store(sublayer_gradient + place, sum_gradient_RD.to(sublayer_gradient.dtype.element_ty), mask=inside)
    of_program = sums + program * 3 * width + tl.arange(0, BLOCK)
    is_column = tl.arange(0, BLOCK) < width
    tl.store(of_program, tl.sum(sublayer_sum_RD, 0), mask=is_column)
    tl.store(of_program + width, tl.sum(weight_sum_RD, 0), mask=is_column)
    tl.store(of_program + 2 * width, tl.sum(bias_sum_RD, 0), mask=is_column)


@triton_op("transformer_mt::residual_norm", mutates_args=())
def residual_norm(
    x_ND: Tensor,
    sublayer_ND: Tensor,
    sublayer_bias_D: Tensor,
    weight_D: Tensor,
    bias_D: Tensor,
    seed_1: Tensor,
    number: int,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """LayerNorm(x + Dropout(sublayer + sublayer_bias)) (Vaswani et al. 2017, sec. 3.1 and 5.4), ND, in two types: fp32
    and that of the sub-layer's output.

    x, weight and biases are fp32. `seed_1` (int64) and the `number` of this sum among all with the same seed decide
    which elements are dropped. The other two results are for the gradient: the normed sum, ND, and the scale of each
    row, N.
    """
    x_ND, sublayer_ND = x_ND.contiguous(), sublayer_ND.contiguous()
    num_rows, width = x_ND.shape
    read = x_ND, sublayer_ND, sublayer_bias_D, weight_D, bias_D, seed_1
    output_ND, rounded_ND, normed_ND = (torch.empty_like(like_ND) for like_ND in (x_ND, sublayer_ND, sublayer_ND))
    written = output_ND, rounded_ND, normed_ND, weight_D.new_empty(num_rows)
    wrap_triton(forward_kernel)[(triton.cdiv(num_rows, ROWS),)](
        *read, *written, number, num_rows, width, EPS=eps, **_constants(width, dropout)
    )
    return written


@triton_op("transformer_mt::residual_norm_backward", mutates_args=())
def _backward(
    gradient_ND: Tensor,
    rounded_gradient_ND: Tensor,
    normed_ND: Tensor,
    scale_N: Tensor,
    weight_D: Tensor,
    seed_1: Tensor,
    number: int,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x and the sub-layer's output, ND; for those of biases and weight the sums of each program."""
    num_rows, width = normed_ND.shape
    programs = min(PROGRAMS, triton.cdiv(num_rows, ROWS))
    gradient_ND, rounded_gradient_ND = gradient_ND.contiguous(), rounded_gradient_ND.contiguous()
    read = gradient_ND, rounded_gradient_ND, normed_ND, scale_N, weight_D, seed_1
    written = torch.empty_like(gradient_ND), torch.empty_like(normed_ND), weight_D.new_empty(programs, 3, width)
    wrap_triton(backward_kernel)[(programs,)](*read, *written, number, num_rows, width, **_constants(width, dropout))
    return written


def _constants(width: int, dropout: float) -> dict[str, Any]:
    """The constants for which a kernel is compiled."""
    block = triton.next_power_of_2(width)
    return {"DROPOUT": dropout, "ROWS": ROWS, "BLOCK": block, "num_warps": max(1, min(8, block // 256))}


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *_, weight_D, _, seed_1, ctx.number, _, ctx.dropout = inputs
    ctx.save_for_backward(*output[2:], weight_D, seed_1)
    ctx.mark_non_differentiable(*output[2:])


def _gradients(
    ctx: Any, gradient_ND: Tensor, rounded_gradient_ND: Tensor, *_: Tensor | None
) -> tuple[Tensor | None, ...]:
    gradients = gradient_ND, rounded_gradient_ND
    x_gradient_ND, sublayer_gradient_ND, sums = _backward(*gradients, *ctx.saved_tensors, ctx.number, ctx.dropout)
    return x_gradient_ND, sublayer_gradient_ND, *sums.sum(dim=0), *[None] * 4


residual_norm.register_autograd(_gradients, setup_context=_keep)
