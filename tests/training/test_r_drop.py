"""R-Drop is half of equation 4 of its paper, however it is cut, gradients too."""

import pytest
import torch
from torch.nn import functional as F

from transformer_mt.base.languages import PAD
from transformer_mt.kernels import r_drop as module
from transformer_mt.training.loss import LossSums, label_smoothed

N, D, V = 23, 8, 13

alphas = pytest.mark.parametrize("alpha", [0.0, 1.0, 5.0])
smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1])


@pytest.fixture(params=["one chunk", "several chunks", "a token a chunk", "less than a token a chunk"])
def chunks(request, monkeypatch):
    """The last chunk of several is shorter than the others."""
    sizes = {"one chunk": 3 * N * V, "several chunks": 2 * 5 * V + 1, "a token a chunk": 2 * V}
    monkeypatch.setattr(module, "CHUNK_LOGITS", sizes.get(request.param, V // 2))


def r_drop(*inputs):
    return LossSums(*module.r_drop(*inputs))


def draw(dtype):
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    return normal(N, D), normal(N, D), normal(V, D), torch.randint(PAD + 1, V, (N,), generator=generator)


@pytest.fixture
def inputs():
    return draw(torch.float64)


def equation_4(first_ND, second_ND, output_VD, labels_N, smoothing, alpha):
    """As in the paper, for each token: both losses summed, and alpha times half of both divergences."""
    losses = []
    for first_D, second_D, label in zip(first_ND, second_ND, labels_N, strict=True):
        logits = [features_D @ output_VD.T for features_D in (first_D, second_D)]
        first_V, second_V = (logits_V.softmax(dim=0) for logits_V in logits)
        nll = sum(F.cross_entropy(logits_V, label, label_smoothing=smoothing) for logits_V in logits)
        forwards = (first_V * (first_V / second_V).log()).sum()
        backwards = (second_V * (second_V / first_V).log()).sum()
        losses.append(nll + alpha * (forwards + backwards) / 2)
    return torch.stack(losses).sum()


@smoothings
@alphas
def test_the_loss_and_its_gradients_are_half_of_equation_4(chunks, inputs, smoothing, alpha):
    ours = r_drop(*inputs, smoothing, alpha).smoothed
    theirs = equation_4(*inputs, smoothing, alpha) / 2
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(loss, inputs[:3]) for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients)


def test_a_bias_is_the_weight_of_a_feature_that_is_one(chunks, inputs):
    *passes, output_VD, labels_N = inputs
    bias_V = torch.randn(V, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    ours = r_drop(*inputs, 0.1, 5.0, bias_V).smoothed
    wider = [torch.cat([one_ND, torch.ones(N, 1, dtype=torch.float64)], dim=1) for one_ND in passes]
    theirs = r_drop(*wider, torch.cat([output_VD, bias_V[:, None]], dim=1), labels_N, 0.1, 5.0).smoothed
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(loss, (*passes, output_VD, bias_V)) for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients)


def test_the_gradients_are_those_of_small_differences(chunks, inputs):
    *tensors, labels_N = inputs
    few = [tensor[:3].detach().requires_grad_() for tensor in tensors[:2]]
    assert torch.autograd.gradcheck(lambda *t: r_drop(*t, labels_N[:3], 0.1, 5.0).smoothed, (*few, tensors[2]))


@smoothings
@alphas
def test_of_two_passes_that_agree_it_is_the_plain_loss(chunks, smoothing, alpha):
    first_ND, _, output_VD, labels_N = draw(torch.float32)
    ours = r_drop(first_ND, first_ND, output_VD, labels_N, smoothing, alpha)
    plain = label_smoothed(first_ND, output_VD, labels_N, smoothing)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(sums.smoothed, (first_ND, output_VD)) for sums in (ours, plain)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@smoothings
def test_without_alpha_it_is_the_mean_of_two_plain_losses(chunks, smoothing):
    first_ND, second_ND, output_VD, labels_N = draw(torch.float32)
    ours = r_drop(first_ND, second_ND, output_VD, labels_N, smoothing, 0.0)
    plain = [label_smoothed(features_ND, output_VD, labels_N, smoothing) for features_ND in (first_ND, second_ND)]
    torch.testing.assert_close(ours.smoothed, (plain[0].smoothed + plain[1].smoothed) / 2, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.nll, (plain[0].nll + plain[1].nll) / 2, rtol=1e-5, atol=1e-5)


@alphas
def test_nll_is_of_the_labels_alone_and_has_no_gradient(inputs, alpha):
    nll = r_drop(*inputs, 0.1, alpha).nll
    torch.testing.assert_close(nll, r_drop(*inputs, 0.0, 0.0).smoothed.detach())
    assert not nll.requires_grad


def test_passes_may_change_places(inputs):
    first_ND, second_ND, *rest = inputs
    losses = [r_drop(*passes, *rest, 0.1, 5.0).smoothed for passes in ((first_ND, second_ND), (second_ND, first_ND))]
    torch.testing.assert_close(*losses)


def test_without_gradients_the_sums_are_the_same(inputs):
    with torch.no_grad():
        sums = r_drop(*inputs, 0.1, 5.0)
    assert not sums.smoothed.requires_grad
    torch.testing.assert_close(sums, tuple(part.detach() for part in r_drop(*inputs, 0.1, 5.0)))


def test_of_half_precision_only_the_products_are_half(chunks):
    first_ND, second_ND, output_VD, labels_N = draw(torch.float32)
    halves = [features_ND.detach().bfloat16().requires_grad_() for features_ND in (first_ND, second_ND)]
    ours = r_drop(*halves, output_VD, labels_N, 0.1, 5.0).smoothed
    theirs = r_drop(first_ND, second_ND, output_VD, labels_N, 0.1, 5.0).smoothed
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0)
    gradients = torch.autograd.grad(ours, (*halves, output_VD))
    assert [gradient.dtype for gradient in gradients] == [torch.bfloat16, torch.bfloat16, torch.float32]
    for our, their in zip(gradients, torch.autograd.grad(theirs, (first_ND, second_ND, output_VD)), strict=True):
        assert (our - their).norm() < 0.03 * their.norm()


@pytest.mark.thorough
def test_the_output_gradient_of_many_chunks_is_summed_in_full_precision(monkeypatch):
    """Sums in bf16 stop growing at 256 equal terms."""
    first_ND, second_ND, output_VD, labels_N = draw(torch.float32)
    monkeypatch.setattr(module, "CHUNK_LOGITS", 2 * V)
    halves = [features_ND[:1].detach().bfloat16() for features_ND in (first_ND, second_ND)]

    def gradient(count):
        passes = [half_1D.expand(count, D) for half_1D in halves]
        loss = r_drop(*passes, output_VD, labels_N[:1].expand(count), 0.1, 5.0).smoothed
        return torch.autograd.grad(loss, output_VD)[0]

    # Each of 600 sums in fp32 may round by 6e-8.
    torch.testing.assert_close(gradient(600), 600 * gradient(1), rtol=4e-5, atol=0)


def test_autograd_keeps_no_logits(chunks, inputs):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda _: None):
        r_drop(*inputs, 0.1, 5.0)
    assert sum(tensor.numel() for tensor in kept) == 2 * N * D + V * D
