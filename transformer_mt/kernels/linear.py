"""Linear maps: x W^T + b."""

from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Linear):
    """nn.Linear, computed as `linear` does."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """F.linear. On a CPU the bias comes last.

    There F.linear copies it into all rows and has the product added to them, which takes a tenth longer where
    rows become wider.
    """
    if x.device.type != "cpu":
        return F.linear(x, weight, bias)
    product = F.linear(x, weight)
    return product.add_(bias.to(product.dtype))
