"""Dropout (Srivastava et al. 2014; Vaswani et al. 2017, sec. 5.4).

It equals PyTorch's F.dropout(x, probability, training) with other random numbers: 0 with this probability, and else x
divided by the probability of keeping it. On a CPU the probability is rounded to a multiple of 1/65,536.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Dropout):
    """nn.Dropout, computed by `scaled_mask` on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * scaled_mask(x, self.p)


def scaled_mask(x: Tensor, probability: float) -> Tensor:
    """A tensor of the shape and type of x: 0 with this probability, to the nearest 1/65,536, and else 1 / P(kept).

    On the CPU random numbers are made one after the other. F.dropout takes one for each element and spends
    a fifth of a small model's training on it; here 64 random bits serve four elements.
    """
    threshold = min(round(probability * 2**16), 2**16 - 1)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    # Compared into a mask of the type of x at once: a bool in between takes five times as long.
    kept = torch.ge(bits, threshold - 2**15, out=torch.empty(x.shape, dtype=x.dtype))
    return kept.mul_(2**16 / (2**16 - threshold))
