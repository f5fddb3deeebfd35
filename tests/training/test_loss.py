"""The plain formula is that of its source and of PyTorch; tests/kernels/test_cross_entropy.py compares the fast one."""

import pytest
import torch
from torch.nn import functional as F

from transformer_mt.base.languages import PAD
from transformer_mt.kernels.cross_entropy import chunked_cross_entropy
from transformer_mt.training.loss import LossSums, label_smoothed

N, D, V = 23, 8, 13

smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])


def chunked_label_smoothed(*arguments, **settings):
    return LossSums(*chunked_cross_entropy(*arguments, **settings))


losses = pytest.mark.parametrize("loss", [label_smoothed, chunked_label_smoothed])


@pytest.fixture
def inputs():
    """Two labels are PAD."""
    generator = torch.Generator().manual_seed(1)
    features_ND = torch.randn(N, D, generator=generator, requires_grad=True)
    output_VD = torch.randn(V, D, generator=generator, requires_grad=True)
    labels_N = torch.randint(PAD + 1, V, (N,), generator=generator)
    labels_N[7] = labels_N[N - 1] = PAD
    return features_ND, output_VD, labels_N


@losses
@smoothings
def test_the_loss_is_the_cross_entropy_against_softened_labels(loss, inputs, smoothing):
    """Written out: a label keeps 1 - smoothing, and all V words share the rest."""
    features_ND, output_VD, labels_N = inputs
    log_probs_NV = (features_ND @ output_VD.T).log_softmax(dim=-1)
    expected = 0.0
    for log_probs_V, label in zip(log_probs_NV.tolist(), labels_N.tolist(), strict=True):
        if label == PAD:
            continue
        softened_V = [smoothing / V + (1 - smoothing) * (word == label) for word in range(V)]
        expected -= sum(share * log_prob for share, log_prob in zip(softened_V, log_probs_V, strict=True))
    assert loss(*inputs, smoothing).smoothed.item() == pytest.approx(expected, rel=1e-5)


@losses
@smoothings
def test_the_loss_and_its_gradients_are_those_of_pytorch(loss, inputs, smoothing):
    features_ND, output_VD, labels_N = inputs
    logits_NV = features_ND @ output_VD.T
    theirs = F.cross_entropy(logits_NV, labels_N, label_smoothing=smoothing, reduction="sum", ignore_index=PAD)
    ours = loss(*inputs, smoothing).smoothed
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(each, (features_ND, output_VD)) for each in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@losses
def test_the_unsmoothed_loss_is_that_of_pytorch(loss, inputs):
    features_ND, output_VD, labels_N = inputs
    theirs = F.cross_entropy(features_ND @ output_VD.T, labels_N, reduction="sum", ignore_index=PAD)
    nll = loss(*inputs, 0.3).nll
    torch.testing.assert_close(nll, theirs.detach(), rtol=1e-5, atol=1e-5)
    assert not nll.requires_grad
