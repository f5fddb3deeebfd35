"""On a GPU, the loss and its gradients are those of the formula, in fp32 and in bf16, whatever lay in memory before."""

from functools import partial

import pytest
import torch
from helpers.on_gpu import BF16_ROUNDING, assert_as_near, assert_rows_as_near, poison
from torch.nn import functional as F

from transformer_mt.base.languages import PAD
from transformer_mt.kernels.cross_entropy import chunked_cross_entropy
from transformer_mt.training.loss import LossSums, label_smoothed

pytestmark = pytest.mark.cuda

# One row; a few; as many as a batch that has no round number of them; more than a chunk.
ROWS = [1, 130, 5003, 9001]
# The last alone is a multiple of 8, as some matrix products need it.
VOCABULARIES = [17, 1004, 2001, 1024]
# In fp32 a sum over 9,001 rows of products over 64 numbers is wrong by the square root of the number of its roundings.
FP32_TOLERANCE = 1e-5


def chunked_label_smoothed(*arguments):
    return LossSums(*chunked_cross_entropy(*arguments))


def inputs(num_rows, vocab_size, dtype, width=64):
    """A third of the rows at the end are padding, as in the last batch of an epoch, and one in between.

    Features and weights are numbers that `dtype` knows, so that fp64 computes of the same.
    """
    generator = torch.Generator().manual_seed(1)
    features_ND = torch.randn(num_rows, width, generator=generator).to(dtype)
    output_VD = (torch.randn(vocab_size, width, generator=generator) / 4).to(dtype)
    labels_N = torch.randint(PAD + 1, vocab_size, (num_rows,), generator=generator)
    if num_rows > 2:
        labels_N[1] = PAD
        labels_N[-(num_rows // 3) :] = PAD
    return features_ND, output_VD, labels_N


def with_gradients(formula, given, device, dtype, smoothing):
    """The smoothed loss, the unsmoothed one, and the gradients of features and weights; weights are never in bf16."""
    features_ND, output_VD, labels_N = (tensor.to(device) for tensor in given)
    features_ND = features_ND.to(dtype).requires_grad_()
    output_VD = output_VD.to(torch.promote_types(dtype, torch.float32)).requires_grad_()
    sums = formula(features_ND, output_VD, labels_N, smoothing)
    poison(device)
    gradients = torch.autograd.grad(sums.smoothed, (features_ND, output_VD))
    assert not sums.nll.requires_grad
    return sums.smoothed.detach(), sums.nll, *gradients


def plain_with_logits_in_bf16(features_ND, output_VD, labels_N, smoothing):
    """The formula with matrix products in bf16 and all else in fp32, as autocast has it."""
    logits_NV = F.linear(features_ND, output_VD.to(features_ND.dtype)).float()
    loss = partial(F.cross_entropy, logits_NV, labels_N, reduction="sum", ignore_index=PAD)
    return LossSums(loss(label_smoothing=smoothing), loss().detach())


@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("vocab_size", VOCABULARIES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_in_fp32_the_loss_and_its_gradients_are_those_of_the_formula(gpu, num_rows, vocab_size, smoothing):
    given = inputs(num_rows, vocab_size, torch.float32)
    exact = with_gradients(label_smoothed, given, torch.device("cpu"), torch.float64, smoothing)
    poison(gpu.torch_device)
    found = with_gradients(chunked_label_smoothed, given, gpu.torch_device, torch.float32, smoothing)
    for ours, right in zip(found, exact, strict=True):
        assert ours.dtype == torch.float32
        assert (ours.cpu() - right).norm() <= FP32_TOLERANCE * right.norm()
    assert not found[2].cpu()[given[2] == PAD].any(), "padding learns nothing"


@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("vocab_size", VOCABULARIES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_in_bf16_they_are_as_near_to_it_as_the_plain_products_in_bf16(gpu, num_rows, vocab_size, smoothing):
    given = inputs(num_rows, vocab_size, torch.bfloat16)
    exact = with_gradients(label_smoothed, given, torch.device("cpu"), torch.float64, smoothing)
    plain = with_gradients(plain_with_logits_in_bf16, given, gpu.torch_device, torch.bfloat16, smoothing)
    poison(gpu.torch_device)
    found = with_gradients(chunked_label_smoothed, given, gpu.torch_device, torch.bfloat16, smoothing)
    assert [tensor.dtype for tensor in found] == [torch.float32, torch.float32, torch.bfloat16, torch.float32]
    for name, ours, theirs, right in zip(("smoothed", "nll", "dX", "dW"), found, plain, exact, strict=True):
        assert_as_near(ours, theirs, right, name)
    assert_rows_as_near(found[2], plain[2], exact[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_gradients_the_sums_are_the_same(gpu, dtype):
    given = [tensor.to(gpu.torch_device) for tensor in inputs(5003, 1004, dtype)]
    expected = chunked_label_smoothed(*given, 0.1)
    poison(gpu.torch_device)
    with torch.no_grad():
        sums = chunked_label_smoothed(*given, 0.1)
    torch.testing.assert_close(tuple(sums), tuple(expected), rtol=1e-6, atol=0)


@pytest.mark.parametrize("garbage", [1e30, torch.inf, torch.nan])
def test_what_the_features_of_padding_are_does_not_matter(gpu, garbage):
    features_ND, output_VD, labels_N = inputs(5003, 1004, torch.bfloat16)
    spoilt_ND = torch.where((labels_N == PAD)[:, None], garbage, features_ND)
    expected = with_gradients(
        chunked_label_smoothed, (features_ND, output_VD, labels_N), gpu.torch_device, gpu.dtype, 0.1
    )
    found = with_gradients(chunked_label_smoothed, (spoilt_ND, output_VD, labels_N), gpu.torch_device, gpu.dtype, 0.1)
    for ours, theirs in zip(found, expected, strict=True):
        # The same numbers meet the same kernels, but a GPU may sum them in another order.
        assert (ours.float() - theirs.float()).norm() <= 2 * BF16_ROUNDING * theirs.float().norm()


def test_a_batch_of_padding_alone_costs_nothing(gpu):
    features_ND, output_VD, _ = inputs(700, 1004, torch.bfloat16)
    poison(gpu.torch_device)
    given = (features_ND, output_VD, torch.full((700,), PAD))
    for tensor in with_gradients(chunked_label_smoothed, given, gpu.torch_device, gpu.dtype, 0.1):
        assert not tensor.any()


def test_many_rows_are_summed_into_the_gradient_of_the_weights_in_full_precision(gpu):
    """Sums in bf16 stop growing at 256 equal terms."""
    features_ND, output_VD, labels_N = inputs(1, 1004, torch.bfloat16)

    def gradient(num_rows):
        given = (features_ND.expand(num_rows, -1), output_VD, labels_N.expand(num_rows))
        return with_gradients(chunked_label_smoothed, given, gpu.torch_device, gpu.dtype, 0.1)[3]

    exact, found = 20_000 * gradient(1).double(), gradient(20_000).double()
    assert (found - exact).norm() <= 1e-4 * exact.norm()
