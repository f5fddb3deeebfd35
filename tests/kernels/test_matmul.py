"""Products with frozen weights: in floats as F.linear, in integers as near as their scales allow."""

import itertools
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer_mt.kernels.matmul import Matmul, most_of_weights

INT8 = Matmul(quantization="int8")
SHAPES = [(1, 16, 16), (3, 16, 24), (7, 40, 1), (130, 64, 50), (700, 40, 128)]

with_and_without_bias = pytest.mark.parametrize("has_bias", [True, False])
with_and_without_relu = pytest.mark.parametrize("relu", [False, True])
few_and_many_rows = pytest.mark.parametrize("many_rows", [False, True])
few_and_many_numbers = pytest.mark.parametrize("num_rows", [7, 700])  # of 128; of so many, by two engines


def drawn(num_rows, in_width, out_width, has_bias=True, seed=1):
    """x_ND, W_FD and b_F."""
    generator = torch.Generator().manual_seed(seed)
    x_ND = torch.randn(num_rows, in_width, generator=generator)
    weight_FD = torch.randn(out_width, in_width, generator=generator)
    return x_ND, weight_FD, torch.randn(out_width, generator=generator) if has_bias else None


def allowed_error(x_ND, weight_FD, half_input_step=None):
    """How far integers may be from the exact product; NF.

    Rounded to a grid, if no other is named of 255 steps between the least and the greatest input, or 0, an input x is
    off by half a step a at most; rounded to so many steps up to the largest of its row, a weight w by half a step b.
    (x + a)(w + b) is off by a w + b x + a b; these are summed over D. And fp32 rounds.
    """
    if half_input_step is None:
        half_input_step = (x_ND.max().clamp_min(0) - x_ND.min().clamp_max(0)) / 255 / 2
    half_weight_step_F = weight_FD.abs().amax(dim=1) / most_of_weights() / 2
    from_inputs = half_input_step * weight_FD.abs().sum(dim=1)
    from_weights_NF = x_ND.abs().sum(dim=1)[:, None] * half_weight_step_F
    from_both = half_input_step * half_weight_step_F * x_ND.shape[1]
    return 1.001 * (from_inputs + from_weights_NF + from_both) + 1e-6


def assert_near(product_NF, x_ND, weight_FD, bias_F, relu=False, half_input_step=None):
    exact_NF = F.linear(x_ND.double(), weight_FD.double(), None if bias_F is None else bias_F.double())
    assert product_NF.dtype == torch.float32
    error_NF = (product_NF - (exact_NF.relu() if relu else exact_NF)).abs()
    assert (error_NF <= allowed_error(x_ND, weight_FD, half_input_step)).all()


# Floats


@with_and_without_bias
@with_and_without_relu
@few_and_many_rows
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(None, 1e-5), (torch.float32, 1e-5), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)]
)
def test_products_of_floats_are_those_of_linear_layers(dtype, tolerance, many_rows, relu, has_bias):
    for shape in SHAPES:
        x_ND, weight_FD, bias_F = drawn(*shape, has_bias)
        product_NF = Matmul(dtype).of_weight(weight_FD, bias_F, many_rows, relu)(x_ND)
        assert product_NF.dtype == (dtype or torch.float32)
        scale = x_ND.norm(dim=1).max() * weight_FD.norm(dim=1).max()
        expected_NF = F.linear(x_ND, weight_FD, bias_F)
        error_NF = product_NF.float() - (expected_NF.relu() if relu else expected_NF)
        assert error_NF.abs().max() <= tolerance * scale


def test_without_a_type_of_their_own_they_have_that_of_the_weights():
    x_ND, weight_FD, bias_F = (tensor.double() for tensor in drawn(5, 16, 24))
    product_NF = Matmul().of_weight(weight_FD, bias_F)(x_ND)
    torch.testing.assert_close(product_NF, F.linear(x_ND, weight_FD, bias_F), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("matmul", [Matmul(), Matmul(torch.bfloat16), INT8], ids=["fp32", "bf16", "int8"])
@with_and_without_bias
@with_and_without_relu
@pytest.mark.parametrize("num_rows", [1, 5, 4000])
def test_the_product_of_a_layer_is_that_of_its_weights_which_are_copied(num_rows, relu, has_bias, matmul):
    linear, x_ND = nn.Linear(16, 24, bias=has_bias), drawn(num_rows, 16, 24)[0]
    product = matmul.of(linear, relu=relu)
    product_NF = product(x_ND)
    assert torch.equal(product_NF, matmul.of_weight(linear.weight, linear.bias, relu=relu)(x_ND))
    assert not product_NF.requires_grad
    with torch.no_grad():
        linear.weight.zero_()
    assert torch.equal(product(x_ND), product_NF)


# Integers


@with_and_without_bias
@with_and_without_relu
def test_integers_are_off_by_what_their_scales_explain(relu, has_bias):
    for shape, seed in itertools.product(SHAPES, range(5)):
        x_ND, weight_FD, bias_F = drawn(*shape, has_bias, seed)
        for inputs_ND in (x_ND, x_ND.relu(), -x_ND.abs(), 1e3 * x_ND, x_ND + 50):
            product_NF = INT8.of_weight(weight_FD, bias_F, relu=relu)(inputs_ND)
            assert_near(product_NF, inputs_ND, weight_FD, bias_F, relu)


@few_and_many_numbers
def test_integers_are_exact_where_nothing_is_rounded(num_rows):
    """Inputs of 0 to 255 steps, the least and the greatest among them, and weights of all steps likewise."""
    most = most_of_weights()
    generator = torch.Generator().manual_seed(1)
    x_ND = torch.randint(0, 256, (num_rows, 64), generator=generator).float()
    weight_FD = torch.randint(-most, most + 1, (128, 64), generator=generator).float()
    x_ND[0, :2], weight_FD[:, 0] = torch.tensor([0.0, 255.0]), float(most)
    expected_NF = F.linear(x_ND, weight_FD)
    torch.testing.assert_close(INT8.of_weight(weight_FD, None)(x_ND), expected_NF, rtol=1e-5, atol=1e-2)


@few_and_many_numbers
def test_integers_are_not_exact(num_rows):
    """So that the test before this one says something of them."""
    x_ND, weight_FD, bias_F = drawn(num_rows, 64, 128)
    error_NF = INT8.of_weight(weight_FD, bias_F)(x_ND) - F.linear(x_ND, weight_FD, bias_F)
    assert error_NF.abs().max() > 0.05 * allowed_error(x_ND, weight_FD).max()


@few_and_many_numbers
def test_the_largest_sums_do_not_overflow(num_rows):
    """Pairs of the largest inputs and weights, of one sign, are more than 16 bits hold."""
    x_ND, weight_FD = torch.ones(num_rows, 512), torch.ones(512, 512)
    x_ND[:, ::5] = 0.0
    assert_near(INT8.of_weight(weight_FD, None)(x_ND), x_ND, weight_FD, None)
    assert_near(INT8.of_weight(-weight_FD, None)(x_ND), x_ND, -weight_FD, None)


@pytest.mark.parametrize(
    ("machine", "has_vnni", "used", "most"),
    [
        ("x86_64", True, "AVX512", 127),
        ("x86_64", True, "AVX2", 64),
        ("x86_64", False, "AVX512", 64),
        ("aarch64", False, "DEFAULT", 127),
    ],
)
def test_weights_are_smaller_where_pairs_are_summed_in_16_bits(machine, has_vnni, used, most, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_vnni": has_vnni, "avx_vnni": True})
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: used)
    assert most_of_weights() == most
    assert most == 127 or 2 * 255 * most < 2**15
    rounded_N1 = INT8.of_weight(torch.linspace(0, 1, 500)[None], None)(torch.eye(500))
    assert len(rounded_N1.unique()) == most + 1  # steps, and zero


@few_and_many_numbers
def test_each_row_of_a_weight_has_its_own_scale(num_rows):
    x_ND, weight_FD, _ = drawn(num_rows, 64, 128)
    sizes_F = torch.logspace(-4, 4, 128)
    weight_FD = weight_FD * sizes_F[:, None]
    assert_near(INT8.of_weight(weight_FD, None)(x_ND), x_ND, weight_FD, None)


@few_and_many_numbers
def test_zeros_give_the_bias(num_rows):
    x_ND, weight_FD, bias_F = drawn(num_rows, 64, 128)
    weight_FD[::3] = 0.0
    expected_NF = bias_F.expand(num_rows, 128)
    product = INT8.of_weight(weight_FD, bias_F)
    torch.testing.assert_close(product(x_ND)[:, ::3], expected_NF[:, ::3])
    torch.testing.assert_close(product(torch.zeros(num_rows, 64)), expected_NF)


@few_and_many_numbers
@pytest.mark.parametrize("engine", ["x86", "onednn"])
def test_the_setting_for_integers_is_as_before_and_nothing_warns(engine, num_rows, monkeypatch):
    monkeypatch.setattr(torch.backends.quantized, "engine", engine)
    x_ND, weight_FD, bias_F = drawn(num_rows, 64, 128)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        INT8.of_weight(weight_FD, bias_F)(x_ND)
    assert seen == []
    assert torch.backends.quantized.engine == engine
