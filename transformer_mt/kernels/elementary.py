"""Linear maps and dropout that are faster than PyTorch's and equal to them, except for dropout's random numbers.

N rows  D input width  F output width
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class Linear(nn.Linear):
    """nn.Linear, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight) if self.bias is None else linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """F.linear(x, weight, bias). On a CPU, this adds the bias after the product.

    There F.linear copies the bias into all rows first, which takes a tenth longer if the output is the wider side.
    """
    if x.device.type != "cpu":
        return F.linear(x, weight, bias)
    product = F.linear(x, weight)
    return product.add_(bias.to(product.dtype))


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """F.relu(F.linear(x, weight, bias)). On a GPU, the product replaces negative numbers by 0 before it writes."""
    if x.device.type != "cpu":
        return rows_linear_relu(x, weight, bias)
    return F.relu(linear(x, weight, bias), inplace=True)


def rows_linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """F.relu(F.linear(x, weight, bias)), by one product of all rows; in the type of autocast, if it is enabled."""
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = x.to(dtype), weight.to(dtype), bias.to(dtype)
    output_NF: Tensor = _LinearRelu.apply(x.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
    return output_NF.view(*x.shape[:-1], len(weight))


class _LinearRelu(Function):
    """F.relu(F.linear(x, weight, bias)) of rows, by one product."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
        output_NF = torch._addmm_activation(bias_F, x_ND, weight_FD.T)
        ctx.save_for_backward(x_ND, weight_FD, output_NF)
        return output_NF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NF: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x_ND, weight_FD, output_NF = ctx.saved_tensors
        gradient_NF = torch.where(output_NF <= 0, 0.0, gradient_NF)  # NaN stays NaN, as in F.relu
        return gradient_NF @ weight_FD, gradient_NF.T @ x_ND, gradient_NF.sum(dim=0)


def linear_maps(x: Tensor, maps: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
    """[F.linear(x, weight, bias) for weight, bias in maps], all of the same width, in one product.

    A GPU then reads x once and writes its gradient once. CPUs are 5 to 20 % slower than with separate products.
    """
    weights, biases = zip(*maps, strict=True)
    return linear(x, torch.cat(weights), torch.cat(biases)).chunk(len(maps), dim=-1)


class Dropout(nn.Dropout):
    """nn.Dropout, computed by `scaled_mask` on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * scaled_mask(x, self.p)


def scaled_mask(x: Tensor, probability: float) -> Tensor:
    """A tensor of the shape and type of x: 0 with this probability (rounded to 1/65,536), otherwise 1 / P(kept).

    The CPU makes random numbers one after the other. F.dropout needs one for each element, which takes a fifth of the
    training time of a small model; here 64 random bits serve four elements.
    """
    threshold = min(round(probability * 2**16), 2**16 - 1)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    # The comparison writes a mask of the type of x directly: a bool tensor in between takes five times as long.
    kept = torch.ge(bits, threshold - 2**15, out=torch.empty(x.shape, dtype=x.dtype))
    return kept.mul_(2**16 / (2**16 - threshold))
