"""Penalties of length and coverage: their formulas, at values that can be worked out by hand."""

import math

import pytest
import torch

from transformer_mt.decoding.engine import coverage_penalty, power_of_length
from transformer_mt.decoding.hypothesis import length_penalty

forms = pytest.mark.parametrize("form", ["gnmt", "average", "none"])
alphas = pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])


# Length


@alphas
def test_gnmt_is_the_formula_of_wu(alpha):
    assert length_penalty(1, alpha) == length_penalty(1, alpha, "gnmt") == 1
    assert length_penalty(7, alpha, "gnmt") == pytest.approx(2**alpha)
    assert length_penalty(49, alpha, "gnmt") == pytest.approx(9**alpha)


@alphas
def test_average_is_a_power_of_the_length(alpha):
    for length in (1, 2, 9, 100):
        assert length_penalty(length, alpha, "average") == pytest.approx(math.exp(alpha * math.log(length)))


def test_with_alpha_1_average_gives_the_mean_of_the_pieces():
    log_probs = [-0.5, -1.5, -4.0]
    assert sum(log_probs) / length_penalty(3, 1.0, "average") == pytest.approx(-2.0)


@alphas
def test_none_divides_by_1(alpha):
    assert [length_penalty(length, alpha, "none") for length in (1, 7, 100)] == [1, 1, 1]


@forms
def test_alpha_0_has_no_effect(form):
    assert [length_penalty(length, 0.0, form) for length in (1, 7, 100)] == [1, 1, 1]


@forms
@alphas
def test_no_translation_is_divided_by_less_for_being_longer(form, alpha):
    penalties = [length_penalty(length, alpha, form) for length in range(1, 50)]
    assert penalties == sorted(penalties)


def test_the_power_of_the_length_grows_as_the_penalty_does():
    for alpha in (0.0, 0.6, 1.0):
        for length in (1, 8, 40):
            average, none, gnmt = (power_of_length(alpha, form, length) for form in ("average", "none", "gnmt"))
            assert average == pytest.approx(alpha)
            assert none == 0
            assert gnmt == pytest.approx(alpha * math.log((6 + length) / (5 + length)) / math.log(1 + 1 / length))


# Coverage


def coverage_of(attention_TS, beta):
    return coverage_penalty(attention_TS.sum(dim=0).tolist(), beta)


def test_coverage_is_the_formula_of_wu():
    attention_TS = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.0, 0.75]])
    assert coverage_of(attention_TS, 0.2) == pytest.approx(0.2 * (math.log(0.75) + math.log(0.25)))


def test_a_source_that_is_looked_at_everywhere_costs_nothing():
    assert coverage_of(torch.eye(4), 0.2) == 0
    # More than one look at a position makes up for no other.
    assert coverage_of(torch.eye(4)[[0, 1, 2, 3, 3, 3]], 0.2) == 0
    assert coverage_of(torch.eye(4)[[0, 1, 3, 3]] + 1e-3, 0.2) < -1


def test_beta_0_has_no_effect():
    assert coverage_of(torch.tensor([[1.0, 0.0]]), 0.0) == 0


def test_a_position_never_looked_at_costs_much_but_not_everything():
    """So that translations which leave nothing else out can still be told apart."""
    one, two = (coverage_of(torch.tensor([row]), 1.0) for row in ([1.0, 0.0, 1.0], [1.0, 0.0, 0.0]))
    assert -math.inf < two < one < -20


def test_target_positions_can_be_in_any_order():
    attention_TS = torch.rand(5, 3).softmax(dim=1)
    assert coverage_of(attention_TS.flip(0), 1.0) == pytest.approx(coverage_of(attention_TS, 1.0))
