"""The chunked cross-entropy equals the plain formula of the loss, gradients included."""

import math

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from transformer_mt.base.languages import PAD
from transformer_mt.kernels import cross_entropy
from transformer_mt.kernels.cross_entropy import (
    TILE_ROWS,
    chunked_cross_entropy,
    equal_chunks,
    softmax_and_gradient,
)
from transformer_mt.training.loss import LossSums, label_smoothed

N, D, V = 23, 8, 13

smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])


def chunked_label_smoothed(*arguments):
    return LossSums(*chunked_cross_entropy(*arguments))


@pytest.fixture(params=["one chunk", "several chunks", "a token a chunk", "less than a token a chunk"])
def chunks(request, monkeypatch):
    """The last chunk of several is shorter than the others."""
    sizes = {"one chunk": 2 * N * V, "several chunks": 5 * V + 1, "a token a chunk": V}
    monkeypatch.setattr(cross_entropy, "CHUNK_LOGITS", sizes.get(request.param, V // 2))


@pytest.fixture
def inputs():
    """Two labels are PAD."""
    generator = torch.Generator().manual_seed(1)
    features_ND = torch.randn(N, D, generator=generator, requires_grad=True)
    output_VD = torch.randn(V, D, generator=generator, requires_grad=True)
    labels_N = torch.randint(PAD + 1, V, (N,), generator=generator)
    labels_N[7] = labels_N[N - 1] = PAD
    return features_ND, output_VD, labels_N


def plain(features_ND, output_VD, labels_N, smoothing):
    return label_smoothed(features_ND, output_VD, labels_N, smoothing).smoothed


@smoothings
def test_the_loss_and_its_gradients_are_those_of_the_plain_formula(chunks, inputs, smoothing):
    features_ND, output_VD, labels_N = inputs
    ours = chunked_label_smoothed(features_ND, output_VD, labels_N, smoothing).smoothed
    theirs = plain(features_ND, output_VD, labels_N, smoothing)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    our_gradients = torch.autograd.grad(ours, (features_ND, output_VD))
    their_gradients = torch.autograd.grad(theirs, (features_ND, output_VD))
    torch.testing.assert_close(our_gradients, their_gradients, rtol=1e-4, atol=1e-5)


@smoothings
def test_so_they_are_with_a_bias(chunks, inputs, smoothing):
    """Whose gradient is not that of PAD."""
    features_ND, output_VD, labels_N = inputs
    bias_V = torch.randn(V, generator=torch.Generator().manual_seed(2), requires_grad=True)
    ours = chunked_label_smoothed(*inputs, smoothing, bias_V)
    theirs = label_smoothed(*inputs, smoothing, bias_V)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    in_one_call = F.cross_entropy(
        F.linear(features_ND, output_VD, bias_V), labels_N, label_smoothing=smoothing, reduction="sum", ignore_index=PAD
    )
    torch.testing.assert_close(theirs.smoothed, in_one_call, rtol=1e-5, atol=1e-5)
    trained = features_ND, output_VD, bias_V
    gradients = [torch.autograd.grad(sums.smoothed, trained) for sums in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@smoothings
def test_nll_is_not_smoothed_and_has_no_gradient(chunks, inputs, smoothing):
    nll = chunked_label_smoothed(*inputs, smoothing).nll
    torch.testing.assert_close(nll, plain(*inputs, smoothing=0.0).detach(), rtol=1e-5, atol=1e-5)
    assert not nll.requires_grad


def test_upstream_gradients_scale_both_gradients(inputs):
    features_ND, output_VD, labels_N = inputs

    def gradients(scale):
        smoothed = chunked_label_smoothed(features_ND, output_VD, labels_N, 0.1).smoothed
        return torch.autograd.grad(smoothed * scale, (features_ND, output_VD))

    torch.testing.assert_close(gradients(-2.5), tuple(-2.5 * gradient for gradient in gradients(1.0)))


def test_the_gradient_reaches_what_made_the_features(inputs):
    _, output_VD, labels_N = inputs
    inner = torch.randn(N, D, requires_grad=True)
    ours = torch.autograd.grad(chunked_label_smoothed(inner.tanh() * 2, output_VD, labels_N, 0.1).smoothed, inner)
    theirs = torch.autograd.grad(plain(inner.tanh() * 2, output_VD, labels_N, 0.1), inner)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trained", [(True, False), (False, True)])
def test_the_gradient_of_one_does_not_need_that_of_the_other(inputs, trained):
    *matrices, labels_N = inputs
    features_ND, output_VD = (m.detach().requires_grad_(t) for m, t in zip(matrices, trained, strict=True))
    wanted = features_ND if trained[0] else output_VD
    ours = torch.autograd.grad(chunked_label_smoothed(features_ND, output_VD, labels_N, 0.1).smoothed, wanted)
    theirs = torch.autograd.grad(plain(features_ND, output_VD, labels_N, 0.1), wanted)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_without_gradients_the_sums_are_the_same(chunks, inputs):
    with_gradients = chunked_label_smoothed(*inputs, 0.1)
    with torch.no_grad():
        without = chunked_label_smoothed(*inputs, 0.1)
    assert not without.smoothed.requires_grad
    torch.testing.assert_close(without.smoothed, with_gradients.smoothed.detach())
    torch.testing.assert_close(without.nll, with_gradients.nll)


def test_without_gradients_only_the_logits_are_computed(chunks, inputs):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        chunked_label_smoothed(*inputs, 0.1)
    assert counter.get_total_flops() == 2 * N * D * V


def test_the_sums_of_two_halves_are_the_sums_of_the_whole(inputs):
    features_ND, output_VD, labels_N = inputs
    whole = chunked_label_smoothed(features_ND, output_VD, labels_N, 0.1)
    halves = [
        chunked_label_smoothed(features_ND[part], output_VD, labels_N[part], 0.1) for part in (slice(9), slice(9, N))
    ]
    torch.testing.assert_close(halves[0].smoothed + halves[1].smoothed, whole.smoothed)
    torch.testing.assert_close(halves[0].nll + halves[1].nll, whole.nll)


def test_even_logits_cost_the_logarithm_of_the_vocabulary(inputs):
    features_ND, output_VD, labels_N = inputs
    sums = chunked_label_smoothed(torch.zeros_like(features_ND), output_VD, labels_N, 0.1)
    assert sums.smoothed.item() == pytest.approx((N - 2) * math.log(V), rel=1e-5)
    assert sums.nll.item() == pytest.approx((N - 2) * math.log(V), rel=1e-5)


@pytest.mark.parametrize("scale", [30.0, 1000.0])
def test_improbable_labels_cost_what_they_should(inputs, scale):
    """Most probabilities vanish in fp32, whose smallest is about exp(-103); their logarithms do not."""
    features_ND, output_VD, labels_N = inputs
    ours = chunked_label_smoothed(features_ND * scale, output_VD, labels_N, 0.1)
    torch.testing.assert_close(ours.smoothed, plain(features_ND * scale, output_VD, labels_N, 0.1), rtol=1e-5, atol=0)
    torch.testing.assert_close(
        ours.nll, plain(features_ND * scale, output_VD, labels_N, 0.0).detach(), rtol=1e-5, atol=0
    )
    our_gradients = torch.autograd.grad(ours.smoothed, (features_ND, output_VD))
    theirs = plain(features_ND * scale, output_VD, labels_N, 0.1)
    their_gradients = torch.autograd.grad(theirs, (features_ND, output_VD))
    torch.testing.assert_close(our_gradients, their_gradients, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("garbage", [1e30, math.inf, math.nan])
def test_nothing_is_learnt_where_the_label_is_padding(chunks, inputs, garbage):
    """Whatever the features are there."""
    features_ND, output_VD, labels_N = inputs
    real_N = labels_N != PAD
    spoilt_ND = features_ND.detach().clone()
    spoilt_ND[~real_N] = garbage
    spoilt_ND.requires_grad_()
    ours = chunked_label_smoothed(spoilt_ND, output_VD, labels_N, 0.1)
    alone = chunked_label_smoothed(features_ND[real_N], output_VD, labels_N[real_N], 0.1)
    torch.testing.assert_close(tuple(ours), tuple(alone))
    our_gradients = torch.autograd.grad(ours.smoothed, (spoilt_ND, output_VD))
    their_gradients = torch.autograd.grad(alone.smoothed, (features_ND, output_VD))
    torch.testing.assert_close(our_gradients, their_gradients)


@pytest.mark.parametrize("num_rows", [0, 1, 127, 128, 129, 4096, 4097, 12_345, 25_000])
@pytest.mark.parametrize("most", [1, 500, 4096])
def test_equal_chunks_are_no_more_than_needed_and_of_one_size_but_for_less_than_a_tile_each(num_rows, most):
    chunk = equal_chunks(num_rows, most)
    sizes = [min(chunk, num_rows - start) for start in range(0, num_rows, chunk)]
    assert chunk % TILE_ROWS == 0
    assert chunk < most + TILE_ROWS, "one is larger than allowed by more than rounding"
    assert len(sizes) <= math.ceil(num_rows / most), "they are too many"
    assert chunk < num_rows / math.ceil(num_rows / most) + TILE_ROWS if num_rows else chunk == TILE_ROWS


def formula(logits_NV, labels_N1, smoothing):
    """In float64: log sum exp z, z of the label, and the derivative of the loss without its uniform part."""
    exact_NV = logits_NV.double().requires_grad_()
    log_sum_N1 = exact_NV.logsumexp(dim=-1, keepdim=True)
    label_logit_N1 = exact_NV.gather(1, labels_N1)
    (gradient_NV,) = torch.autograd.grad((log_sum_N1 - (1 - smoothing) * label_logit_N1).sum(), exact_NV)
    return log_sum_N1.detach(), label_logit_N1.detach(), gradient_NV


@smoothings
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_softmax_and_its_gradient_equal_the_formula(scale, smoothing):
    generator = torch.Generator().manual_seed(1)
    logits_NV = scale * torch.randn(N, 40, generator=generator)
    labels_N1 = torch.randint(40, (N, 1), generator=generator)
    ours = softmax_and_gradient(logits_NV.clone(), labels_N1, smoothing)
    for our, exact in zip(ours, formula(logits_NV, labels_N1, smoothing), strict=True):
        torch.testing.assert_close(our.double(), exact, rtol=1e-6, atol=1e-6)


def test_features_in_half_precision_come_close(chunks, inputs):
    """bf16 has eight bits; the weights and their gradient stay fp32."""
    features_ND, output_VD, labels_N = inputs
    half_ND = features_ND.detach().bfloat16().requires_grad_()
    ours = chunked_label_smoothed(half_ND, output_VD, labels_N, 0.1).smoothed
    theirs = plain(features_ND, output_VD, labels_N, 0.1)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=0.01, atol=0)
    our_gradients = torch.autograd.grad(ours, (half_ND, output_VD))
    their_gradients = torch.autograd.grad(theirs, (features_ND, output_VD))
    assert [gradient.dtype for gradient in our_gradients] == [torch.bfloat16, torch.float32]
    for our, their in zip(our_gradients, their_gradients, strict=True):
        assert (our - their).norm() < 0.03 * their.norm()


def test_of_half_precision_only_the_products_are_half(chunks, inputs):
    """From the logits on, the sums are those of fp32."""
    features_ND, output_VD, labels_N = inputs
    half_ND = features_ND.detach().bfloat16()
    logits_NV = (half_ND @ output_VD.bfloat16().T).float()
    expected = F.cross_entropy(logits_NV, labels_N, label_smoothing=0.1, reduction="sum", ignore_index=PAD)
    ours = chunked_label_smoothed(half_ND, output_VD, labels_N, 0.1).smoothed
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=0)


def test_the_output_gradient_of_many_chunks_is_summed_in_full_precision(monkeypatch, inputs):
    """Sums in bf16 stop growing at 256 equal terms."""
    features_ND, output_VD, labels_N = inputs
    monkeypatch.setattr(cross_entropy, "CHUNK_LOGITS", V)
    half_1D = features_ND[:1].detach().bfloat16()

    def gradient(num_tokens):
        sums = chunked_label_smoothed(half_1D.expand(num_tokens, D), output_VD, labels_N[:1].expand(num_tokens), 0.1)
        return torch.autograd.grad(sums.smoothed, output_VD)[0]

    torch.testing.assert_close(gradient(600), 600 * gradient(1), rtol=1e-4, atol=1e-3)


def test_the_inputs_are_left_as_they_were(inputs):
    before = [tensor.detach().clone() for tensor in inputs]
    chunked_label_smoothed(*inputs, 0.1).smoothed.backward()
    assert all(torch.equal(now, then) for now, then in zip(inputs, before, strict=True))
