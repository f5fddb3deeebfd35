"""Products with weights that change no more: in the precision of the weights, in half of it, or in 8-bit integers.

N rows  D input width  F output width
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Quantization = Literal["none", "int8"]
Product = Callable[[Tensor], Tensor]
"""x_ND -> x W^T + b, NF."""


@dataclass(frozen=True)
class Products:
    """How products are made."""

    dtype: torch.dtype | None = None
    """Of operands and results; None is that of the weights."""
    quantization: Quantization = "none"
    """int8, for CPUs: one scale for each row of the weight, and one for all inputs, as they come. fp32 results."""

    def of(self, linear: nn.Linear, many_rows: bool = False) -> Product:
        return self.of_weight(linear.weight, linear.bias, many_rows)

    def of_weight(self, weight_FD: Tensor, bias_F: Tensor | None, many_rows: bool = False) -> Product:
        """The product with a weight, which is copied. `many_rows`: of x, a hundred or more at a time."""
        weight_FD, bias_F = weight_FD.detach(), None if bias_F is None else bias_F.detach()
        if self.quantization == "int8":
            return _int8_product(weight_FD, bias_F, many_rows)
        return _float_product(weight_FD, bias_F, self.dtype or weight_FD.dtype)


def _float_product(weight_FD: Tensor, bias_F: Tensor | None, dtype: torch.dtype) -> Product:
    # The transpose in memory: oneDNN need not turn it at every product, a third of the time of few rows.
    weight_DF = weight_FD.t().to(dtype, memory_format=torch.contiguous_format).contiguous()
    if bias_F is None:
        return lambda x_ND: torch.mm(x_ND.to(dtype), weight_DF)
    bias_F = bias_F.to(dtype)
    return lambda x_ND: torch.mm(x_ND.to(dtype), weight_DF).add_(bias_F)


def _int8_product(weight_FD: Tensor, bias_F: Tensor | None, many_rows: bool) -> Product:
    scale_F = (weight_FD.abs().amax(dim=1) / 127).clamp_min(1e-8).double()
    zero_F = torch.zeros(len(weight_FD), dtype=torch.long)
    before = torch.backends.quantized.engine
    # oneDNN is up to twice as fast at many rows, and takes twice the time to begin.
    torch.backends.quantized.engine = "onednn" if many_rows else "x86"
    with warnings.catch_warnings():
        # PyTorch means to part with its quantised tensors, and names no other way to these products. Only the
        # packing of the weight goes through one.
        warnings.simplefilter("ignore")
        quantized_FD = torch.quantize_per_channel(weight_FD.float(), scale_F, zero_F, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(quantized_FD, None if bias_F is None else bias_F.float())
    torch.backends.quantized.engine = before
    linear_dynamic = torch.ops.quantized.linear_dynamic.default
    return lambda x_ND: linear_dynamic(x_ND, packed)
