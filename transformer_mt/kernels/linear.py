"""Linear maps for training that are faster than PyTorch's.

Each equals F.linear(x, weight, bias), followed by F.relu if requested. On a GPU that multiplies in bf16 or fp16, one
kernel rounds all weights, and the product that makes the gradient of a weight writes it in fp32.

N rows  D input width  F output width
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer_mt.kernels.packed_attention import HAS_TRITON


class Linear(nn.Linear):
    """nn.Linear, computed by `linear`."""

    rounded: tuple[Tensor, ...] = ()
    """Weight and bias in the type of products, inside of `rounded_weights`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight) if self.bias is None else linear(x, *parts(self))


def parts(linear: nn.Linear, rows: slice | None = None) -> tuple[Tensor, ...]:
    """Weight and bias; inside `rounded_weights` also their rounded copies. `rows` chooses rows of the weight."""
    whole = (linear.weight, linear.bias, *(linear.rounded if isinstance(linear, Linear) else ()))
    return whole if rows is None else tuple(part[rows] for part in whole)


@contextmanager
def rounded_weights(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Inside this context, the linear maps of the model multiply by copies of their weights in this type."""
    linears = [module for module in model.modules() if isinstance(module, Linear) and module.bias is not None]
    weights = [part.detach() for linear in linears for part in (linear.weight, linear.bias)]
    copies = [torch.empty_like(weight, dtype=dtype) for weight in weights]
    if copies:
        torch._foreach_copy_(copies, weights)
    for linear, *rounded in zip(linears, copies[::2], copies[1::2], strict=True):
        linear.rounded = tuple(rounded)
    try:
        yield
    finally:
        for linear in linears:
            linear.rounded = ()


def linear(x: Tensor, weight: Tensor, bias: Tensor, *rounded: Tensor, relu: bool = False) -> Tensor:
    """F.linear(x, weight, bias), or F.relu of it with `relu`, which a GPU computes together with the product.

    On a CPU, this adds the bias after the product. There F.linear copies the bias into all rows first, which takes a
    tenth longer if the output is the wider side.
    """
    if x.device.type == "cpu" and not rounded:
        product = F.linear(x, weight)
        product = product.add_(bias.to(product.dtype))
        return F.relu(product, inplace=True) if relu else product
    return rows_linear(x, weight, bias, *rounded, relu=relu) if rounded or relu else F.linear(x, weight, bias)


def rows_linear(x: Tensor, weight: Tensor, bias: Tensor | None, *rounded: Tensor, relu: bool = False) -> Tensor:
    """F.linear(x, weight, bias), or F.relu of it, by one product of all rows; in the type of the rounded weights.

    If there are none, this rounds them to the type of autocast, if it is enabled.
    """
    if not rounded:
        is_autocast = torch.is_autocast_enabled(x.device.type)
        dtype = torch.get_autocast_dtype(x.device.type) if is_autocast else weight.dtype
        rounded = tuple(part.detach().to(dtype) for part in (weight, bias) if part is not None)
    rows_ND = x.to(rounded[0].dtype).flatten(0, -2)
    output_NF: Tensor = _RowsLinear.apply(rows_ND, weight, bias, relu, *rounded)  # type: ignore[no-untyped-call]
    return output_NF.view(*x.shape[:-1], len(weight))


class _RowsLinear(Function):
    """The product has rounded weights; the gradients have the types of the weights themselves."""

    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor | None, relu: bool, *rounded: Tensor
    ) -> Tensor:
        rounded_FD = rounded[0]
        if bias_F is None:
            output_NF = torch.mm(x_ND, rounded_FD.T)
        else:
            output_NF = (torch._addmm_activation if relu else torch.addmm)(rounded[1], x_ND, rounded_FD.T)
        ctx.save_for_backward(x_ND, rounded_FD, *([output_NF] if relu else []))
        ctx.dtype, ctx.has_bias = weight_FD.dtype, bias_F is not None
        return output_NF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NF: Tensor) -> tuple[Tensor | None, ...]:
        x_ND, rounded_FD, *outputs = ctx.saved_tensors
        bias_gradient_F = None
        if outputs:
            gradient_NF, bias_gradient_F = relu_gradient(gradient_NF, outputs[0], ctx.dtype)
        elif ctx.has_bias:
            bias_gradient_F = gradient_NF.sum(dim=0, dtype=ctx.dtype)
        if gradient_NF.is_cuda and gradient_NF.dtype != ctx.dtype:  # in PyTorch, only CUDA multiplies bf16 into fp32
            weight_gradient_FD = torch.mm(gradient_NF.T, x_ND, out_dtype=ctx.dtype)
        else:
            weight_gradient_FD = (gradient_NF.T @ x_ND).to(ctx.dtype)
        return gradient_NF @ rounded_FD, weight_gradient_FD, bias_gradient_F, *[None] * 3


def relu_gradient(gradient_NF: Tensor, output_NF: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The gradient of the input of ReLU, and its sum over all rows in this type. On a GPU by one kernel."""
    if gradient_NF.is_cuda and HAS_TRITON:
        from transformer_mt.kernels.gradients import relu_gradient_parts

        gradient_NF, sums_PF = relu_gradient_parts(gradient_NF, output_NF)
    else:
        gradient_NF = sums_PF = torch.where(output_NF <= 0, 0.0, gradient_NF)  # NaN stays NaN, as in F.relu
    return gradient_NF, sums_PF.sum(dim=0, dtype=dtype)
