"""Linear maps are PyTorch's."""

import pytest
import torch
from torch import nn

from transformer_mt.kernels.linear import Linear, linear_maps


@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), (0, 5)])
def test_a_linear_map_and_its_gradients_are_those_of_pytorch(shape):
    torch.manual_seed(1)
    ours, theirs = Linear(5, 7).double(), nn.Linear(5, 7).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(*shape, 5, dtype=torch.float64, requires_grad=True)
    outputs = ours(x), theirs(x)
    torch.testing.assert_close(*outputs)
    upstream = torch.randn_like(outputs[0])
    gradients = [
        torch.autograd.grad(output, (x, *linear.parameters()), upstream)
        for output, linear in zip(outputs, (ours, theirs), strict=True)
    ]
    torch.testing.assert_close(*gradients)


def test_under_autocast_it_is_half_and_its_gradients_are_whole():
    linear, x = Linear(5, 7), torch.randn(3, 5)
    with torch.autocast("cpu", torch.bfloat16):
        output = linear(x)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(
        output.float(), nn.functional.linear(x, linear.weight, linear.bias), rtol=0.03, atol=0.03
    )
    output.float().sum().backward()
    assert linear.weight.grad.dtype == linear.bias.grad.dtype == torch.float32


def test_several_maps_in_one_product_are_those_of_pytorch():
    torch.manual_seed(1)
    theirs = [nn.Linear(5, 4).double() for _ in range(3)]
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    ours = linear_maps(x, [(linear.weight, linear.bias) for linear in theirs])
    torch.testing.assert_close(list(ours), [linear(x) for linear in theirs])
