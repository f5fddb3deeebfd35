"""Linear maps are PyTorch's."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer_mt.kernels.matmul import Linear, linear_maps, linear_relu, rows_linear_relu


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


@pytest.mark.parametrize("form", [linear_relu, rows_linear_relu], ids=["on a CPU", "on a GPU"])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), (0, 5)])
def test_a_linear_map_cut_off_at_zero_and_its_gradients_are_those_of_pytorch(form, shape):
    torch.manual_seed(1)
    theirs = nn.Linear(5, 7).double()
    x = torch.randn(*shape, 5, dtype=torch.float64, requires_grad=True)
    outputs = form(x, theirs.weight, theirs.bias), F.relu(theirs(x))
    torch.testing.assert_close(*outputs)
    upstream = torch.randn_like(outputs[0])
    torch.testing.assert_close(
        *(torch.autograd.grad(output, (x, *theirs.parameters()), upstream) for output in outputs)
    )


@pytest.mark.parametrize("form", [linear_relu, rows_linear_relu], ids=["on a CPU", "on a GPU"])
def test_cut_off_at_zero_it_is_half_under_autocast_and_its_gradients_are_whole(form):
    linear, x = Linear(5, 7), torch.randn(3, 5)
    with torch.autocast("cpu", torch.bfloat16):
        output = form(x, linear.weight, linear.bias)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), F.relu(linear(x)), rtol=0.03, atol=0.03)
    output.float().sum().backward()
    assert linear.weight.grad.dtype == linear.bias.grad.dtype == torch.float32


@pytest.mark.parametrize("form", [linear_relu, rows_linear_relu], ids=["on a CPU", "on a GPU"])
def test_the_gradient_of_what_is_not_a_number_is_not_cut_off(form):
    """So that an update that went wrong is seen to have."""
    theirs, x = nn.Linear(5, 7), torch.full((2, 5), torch.nan)
    form(x, theirs.weight, theirs.bias).sum().backward()
    assert theirs.weight.grad.isnan().all()
    assert (theirs.bias.grad == 2).all()
