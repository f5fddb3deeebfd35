"""Dropout: how much falls out, what the rest is multiplied by, and that all elements fall independently."""

import math

import pytest
import torch
from torch.nn import functional as F

from transformer_mt.kernels.matmul import Dropout, scaled_mask

probabilities = pytest.mark.parametrize("probability", [0.1, 0.3, 0.5, 0.9])
SIZE = 400_000


def ones_dropped_out(probability, *shape, seed=1, dtype=torch.float32):
    torch.manual_seed(seed)
    return Dropout(probability).train()(torch.ones(*shape, dtype=dtype))


def tolerance(variance, count):
    """Five standard deviations of a mean."""
    return 5 * math.sqrt(variance / count)


@probabilities
@pytest.mark.parametrize("training", [False, True])
def test_what_it_makes_of_a_number_is_what_pytorch_makes_of_it(probability, training):
    """Zero, or the number divided by the probability of keeping it; as often, but not at the same places."""
    torch.manual_seed(1)
    x = torch.full((SIZE,), 3.0, dtype=torch.float64)
    ours, theirs = Dropout(probability).train(training)(x), F.dropout(x, probability, training)
    torch.testing.assert_close(ours.unique(), theirs.unique(), rtol=2e-4, atol=0)
    assert ours.mean().item() == pytest.approx(theirs.mean().item(), abs=3 * tolerance(9 / (1 - probability), SIZE))


@probabilities
def test_the_share_of_zeros_is_the_probability(probability):
    share = (ones_dropped_out(probability, SIZE) == 0).double().mean().item()
    assert share == pytest.approx(probability, abs=tolerance(probability * (1 - probability), SIZE))


@probabilities
def test_the_mean_is_preserved(probability):
    mean = ones_dropped_out(probability, SIZE).double().mean().item()
    assert mean == pytest.approx(1, abs=tolerance(probability / (1 - probability), SIZE))


@probabilities
def test_what_is_kept_is_divided_by_the_probability_of_keeping_it(probability):
    """That is a multiple of 1 / 65,536."""
    x = torch.randn(1000, dtype=torch.float64)
    torch.manual_seed(1)
    y = Dropout(probability).train()(x)
    kept_share = 1 - round(probability * 65_536) / 65_536
    torch.testing.assert_close(y[y != 0], x[y != 0] / kept_share)
    assert kept_share == pytest.approx(1 - probability, abs=1 / 65_536)


def test_a_probability_is_rounded_to_the_nearest_step():
    for probability in (0.1, 0.25, 1 / 65_536, 0.4 / 65_536, 0.6 / 65_536, 65_535 / 65_536):
        largest = max(scaled_mask(torch.ones(64, dtype=torch.float64), probability).max().item() for _ in range(20))
        steps = round(probability * 65_536)
        assert largest in (0.0, 65_536 / (65_536 - steps))
    assert ones_dropped_out(0.4 / 65_536, 10 * 65_536).eq(1).all()
    assert ones_dropped_out(0.6 / 65_536, 50 * 65_536).eq(0).any()


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 8])
def test_neighbours_fall_out_independently(distance):
    """Also the four that one 64-bit number serves."""
    fallen = ones_dropped_out(0.3, SIZE) == 0
    both = (fallen[:-distance] & fallen[distance:]).double()
    for phase in range(4):
        share = both[phase::4].mean().item()
        assert share == pytest.approx(0.09, abs=tolerance(0.09 * 0.91, SIZE // 4))


@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (5,), (3, 7), (2, 3, 11), (0,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_any_number_of_elements_and_any_type_will_do(shape, dtype):
    """Not only multiples of four."""
    y = ones_dropped_out(0.5, *shape, dtype=dtype)
    assert y.shape == shape
    assert y.dtype == dtype
    assert set(y.flatten().tolist()) <= {0.0, 2.0}


def test_every_element_falls_out_at_times_and_stays_at_times():
    drawn = torch.stack([ones_dropped_out(0.5, 3, 7, seed=seed) for seed in range(40)])
    assert (drawn == 0).any(dim=0).all()
    assert (drawn != 0).any(dim=0).all()


def test_the_same_seed_gives_the_same_mask_and_the_next_call_another():
    assert torch.equal(ones_dropped_out(0.3, 1001, seed=5), ones_dropped_out(0.3, 1001, seed=5))
    assert not torch.equal(ones_dropped_out(0.3, 1001, seed=5), ones_dropped_out(0.3, 1001, seed=6))
    dropout, x = Dropout(0.3).train(), torch.ones(1001)
    assert not torch.equal(dropout(x), dropout(x))


def test_the_gradient_is_the_mask():
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(5, 7, dtype=torch.float64)
    y = Dropout(0.4).train()(x)
    (gradient,) = torch.autograd.grad(y, x, upstream)
    assert (y == 0).any()
    torch.testing.assert_close(gradient, upstream * (y / x).detach())


def test_evaluation_and_probability_zero_change_nothing():
    x = torch.randn(50)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0).train()(x), x)
