"""Linear maps are PyTorch's."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer_mt.kernels.linear import Linear, linear, parts, rounded_weights, rows_linear

linear_relu, rows_linear_relu = partial(linear, relu=True), partial(rows_linear, relu=True)


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


def test_rounded_together_a_model_multiplies_by_copies_and_its_weights_get_the_gradients():
    torch.manual_seed(1)
    model, x = nn.Sequential(Linear(5, 7), Linear(7, 3)), torch.randn(4, 5, requires_grad=True)
    names = set(model.state_dict())
    exact = deepcopy(model)
    for weight in exact.parameters():
        weight.data = weight.bfloat16().float()
    with rounded_weights(model, torch.bfloat16):
        output, hidden = model(x), model[0](x)
        some = linear(x, *parts(model[0], slice(2, 6)))
        assert set(model.state_dict()) == names
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(some, hidden[:, 2:6])
    upstream = torch.randn(4, 3).bfloat16()
    found = torch.autograd.grad(output, (x, *model.parameters()), upstream)
    right = torch.autograd.grad(exact(x), (x, *exact.parameters()), upstream.float())
    for ours, theirs in zip(found, right, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 0.01 * theirs.norm()
    model(x).sum().backward()  # outside of the context, nothing is rounded any more
    assert model(x).dtype == torch.float32


def test_without_its_bias_a_linear_map_is_a_product():
    theirs, x = nn.Linear(5, 7).double(), torch.randn(2, 3, 5, dtype=torch.float64)
    upstream = torch.randn(2, 3, 7, dtype=torch.float64)
    outputs = rows_linear(x, theirs.weight, None), F.linear(x, theirs.weight)
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*(torch.autograd.grad(output, theirs.weight, upstream) for output in outputs))


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
