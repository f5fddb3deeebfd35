"""Frozen linear maps and dropout that are faster than PyTorch's.

The linear maps of `Matmul` have weights that no longer change. Each equals F.linear(x, weight, bias), followed by
F.relu if requested; in int8, up to rounding. Dropout equals PyTorch's except for its random numbers.

N rows  D input width  F output width
"""

import platform
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Quantization = Literal["none", "int8"]
INT8_MOST, LEAST_SCALE = 127, 1e-8
INT8_MOST_OF_PAIRS = 64  # 2 x 255 x 64 < 2^15
X86 = "x86_64", "AMD64"
MANY_NUMBERS = 80_000  # for int8 products that write more numbers, oneDNN takes 8 to 25 % less time than FBGEMM
LinearMap = Callable[[Tensor], Tensor]
"""x_ND -> x W^T + b, NF."""


@dataclass(frozen=True)
class Matmul:
    """The precision of matrix products."""

    dtype: torch.dtype | None = None
    """The type of operands and results; None means that of the weights."""
    quantization: Quantization = "none"
    """int8, for CPUs: one scale for each row of the weight, and one for all inputs of a call. Results are fp32.

    Weights are rounded to `most_of_weights` steps on each side of zero, inputs to 255 steps in total.
    """

    def of(self, linear: nn.Linear, many_rows: bool = False, relu: bool = False) -> LinearMap:
        return self.of_weight(linear.weight, linear.bias, many_rows, relu)

    def of_weight(
        self, weight_FD: Tensor, bias_F: Tensor | None, many_rows: bool = False, relu: bool = False
    ) -> LinearMap:
        """x -> F.linear(x, weight, bias), or F.relu of it with `relu`. Copies the weight.

        `many_rows`: x never has only one row, or the weight is so large that this does not matter; saves memory.
        """
        weight_FD, bias_F = weight_FD.detach(), None if bias_F is None else bias_F.detach()
        if self.quantization == "int8":
            return _int8_product(weight_FD, bias_F, relu)
        dtype = self.dtype or weight_FD.dtype
        if weight_FD.device.type == "cpu" and dtype == torch.float32:
            # On x86 without AVX-512, MKL multiplies fp32 faster than oneDNN.
            is_avx2 = torch.backends.cpu.get_cpu_capability() == "AVX2"
            if is_avx2 and torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
                return _transposed_product(weight_FD, bias_F, relu)
            if torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled:  # type: ignore[no-untyped-call]
                return _packed_product(weight_FD, bias_F, many_rows, relu)
        return _plain_product(weight_FD.to(dtype), None if bias_F is None else bias_F.to(dtype), relu)


def most_of_weights() -> int:
    """The largest weight in int8, for this processor.

    x86 without VNNI multiplies unsigned inputs by signed weights two at a time, and clips the sum of the two products
    to 16 bits. FBGEMM does not use VNNI of 256 bits, nor does oneDNN if it is told to compute as on AVX2.
    """
    has_vnni = torch.cpu.get_capabilities().get("avx512_vnni") and torch.backends.cpu.get_cpu_capability() != "AVX2"
    return INT8_MOST_OF_PAIRS if platform.machine() in X86 and not has_vnni else INT8_MOST


def _plain_product(weight_FD: Tensor, bias_F: Tensor | None, relu: bool) -> LinearMap:
    """Computes F.linear(x, weight, bias) itself, in the type of the weight."""
    dtype = weight_FD.dtype

    def product(x_ND: Tensor) -> Tensor:
        y_NF = F.linear(x_ND.to(dtype), weight_FD, bias_F)
        return torch.relu_(y_NF) if relu else y_NF

    return product


def _transposed_product(weight_FD: Tensor, bias_F: Tensor | None, relu: bool) -> LinearMap:
    """Equals F.linear(x, weight, bias), by MKL, which reads a transposed weight faster."""
    weight_DF = weight_FD.t().contiguous()

    def product(x_ND: Tensor) -> Tensor:
        y_NF = torch.mm(x_ND, weight_DF) if bias_F is None else torch.addmm(bias_F, x_ND, weight_DF)
        return torch.relu_(y_NF) if relu else y_NF

    return product


def _packed_product(weight_FD: Tensor, bias_F: Tensor | None, many_rows: bool, relu: bool) -> LinearMap:
    """Equals F.linear(x, weight, bias), by oneDNN; puts the weight into oneDNN's order once.

    Doing so at each call would take half of the time if x has few rows. MKL computes a single row of x, because it
    reads the weight at nearly twice the speed: see `best_matmul`.
    """
    packed = torch.ops.mkldnn._reorder_linear_weight(weight_FD.contiguous(), None)
    linear, then = torch.ops.mkldnn._linear_pointwise.default, "relu" if relu else "none"
    of_one_row = None if many_rows or bias_F is None else _transposed_product(weight_FD, bias_F, relu)

    def product(x_ND: Tensor) -> Tensor:
        if of_one_row is not None and x_ND.shape[0] == 1:
            return of_one_row(x_ND)
        y_NF: Tensor = linear(x_ND, packed, bias_F, then, [], "")
        return y_NF

    return product


def _int8_product(weight_FD: Tensor, bias_F: Tensor | None, relu: bool) -> LinearMap:
    """Equals F.linear(x, weight, bias) up to rounding to int8: by oneDNN for large results, else by FBGEMM."""
    scale_F = (weight_FD.abs().amax(dim=1) / most_of_weights()).clamp_min(LEAST_SCALE).double()
    zero_F = torch.zeros(len(weight_FD), dtype=torch.long)
    with warnings.catch_warnings():
        # PyTorch plans to remove quantised tensors, but has no other way to these products.
        warnings.simplefilter("ignore")
        quantized_FD = torch.quantize_per_channel(weight_FD.float(), scale_F, zero_F, 0, torch.qint8)
    quantized = torch.ops.quantized
    linear = quantized.linear_relu_dynamic.default if relu else quantized.linear_dynamic.default
    F, D = weight_FD.shape
    few = many = _packed_int8(quantized_FD, bias_F, "x86")
    many_rows = MANY_NUMBERS // F
    if F >= D:
        many = _packed_int8(quantized_FD, bias_F, "onednn")

    def product(x_ND: Tensor) -> Tensor:
        y_NF: Tensor = linear(x_ND, few if x_ND.shape[0] < many_rows else many)
        return y_NF

    return product


def _packed_int8(quantized_FD: Tensor, bias_F: Tensor | None, engine: str) -> torch.ScriptObject:
    before = torch.backends.quantized.engine
    bias_F = None if bias_F is None else bias_F.float()
    try:
        if engine in torch.backends.quantized.supported_engines:
            torch.backends.quantized.engine = engine
        packed: torch.ScriptObject = torch.ops.quantized.linear_prepack(quantized_FD, bias_F)
    finally:
        torch.backends.quantized.engine = before
    return packed


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
