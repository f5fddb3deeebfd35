"""Schedules rise to their peak and fall; Adam is the formula of its paper."""

import itertools
import math
from typing import get_args

import pytest
import torch
from torch import nn

from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.optimization import (
    build_optimizer,
    depends_on_end,
    learning_rate,
)


def settings(**changes):
    return TrainingConfig(**{"peak_lr": 3e-3, "warmup_steps": 40, "max_steps": 400} | changes)


@pytest.mark.parametrize(("d_model", "warmup_steps"), [(512, 4000), (256, 100), (1024, 1)])
def test_inverse_sqrt_is_equation_3_of_the_paper(d_model, warmup_steps):
    peak_lr = (d_model * warmup_steps) ** -0.5
    for step in (1, 2, warmup_steps, warmup_steps + 1, 3 * warmup_steps, 100_000):
        paper = d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
        assert learning_rate(step, settings(peak_lr=peak_lr, warmup_steps=warmup_steps)) == pytest.approx(paper)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear", "cosine"])
@pytest.mark.parametrize("warmup_steps", [1, 40, 399])
def test_the_rate_rises_evenly_to_the_peak_at_the_last_warm_up_update_and_falls_after_it(schedule, warmup_steps):
    changed = settings(schedule=schedule, warmup_steps=warmup_steps)
    rates = [learning_rate(step, changed) for step in range(1, changed.max_steps + 1)]
    rise, fall = rates[:warmup_steps], rates[warmup_steps - 1 :]
    assert rise == pytest.approx([changed.peak_lr * step / warmup_steps for step in range(1, warmup_steps + 1)])
    assert rates[warmup_steps - 1] == pytest.approx(changed.peak_lr)
    assert all(later < earlier for earlier, later in itertools.pairwise(fall))
    assert all(rate > 0 for rate in rates)


def test_inverse_sqrt_halves_when_the_step_is_four_times_as_large():
    changed = settings(schedule="inverse_sqrt")
    for step in (40, 57, 1000):
        assert learning_rate(4 * step, changed) == pytest.approx(learning_rate(step, changed) / 2)


@pytest.mark.parametrize(("warmup_steps", "max_steps"), [(1, 10), (40, 400), (10, 11)])
def test_linear_falls_by_even_steps_and_is_one_such_step_above_zero_at_the_last(warmup_steps, max_steps):
    changed = settings(schedule="linear", warmup_steps=warmup_steps, max_steps=max_steps)
    rates = [learning_rate(step, changed) for step in range(warmup_steps, max_steps + 1)]
    falls = [earlier - later for earlier, later in itertools.pairwise(rates)]
    assert falls == pytest.approx([rates[-1]] * len(falls))
    assert 0 < rates[-1] < 3e-3


@pytest.mark.parametrize(("warmup_steps", "max_steps"), [(1, 10), (40, 400), (10, 11)])
def test_cosine_is_equation_5_of_sgdr(warmup_steps, max_steps):
    lowest, highest, period = 0.0, 3e-3, max_steps + 1 - warmup_steps
    changed = settings(schedule="cosine", warmup_steps=warmup_steps, max_steps=max_steps)
    for since_restart in range(period):
        paper = lowest + (highest - lowest) * (1 + math.cos(since_restart / period * math.pi)) / 2
        rate = learning_rate(warmup_steps + since_restart, changed)
        assert rate == pytest.approx(paper)
        assert rate > 0


@pytest.mark.parametrize("warmup_steps", [1, 40, 400])
def test_constant_stays_at_its_peak(warmup_steps):
    changed = settings(schedule="constant", warmup_steps=warmup_steps)
    rates = [learning_rate(step, changed) for step in (*range(1, 401), 10**9)]
    assert rates[:warmup_steps] == pytest.approx([3e-3 * step / warmup_steps for step in range(1, warmup_steps + 1)])
    assert set(rates[warmup_steps - 1 :]) == {3e-3}


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("max_steps", [20, 39, 40])
def test_a_run_that_ends_in_its_warm_up_only_rises(schedule, max_steps):
    changed = settings(schedule=schedule, max_steps=max_steps)
    rates = [learning_rate(step, changed) for step in range(1, max_steps + 1)]
    assert rates == pytest.approx([changed.peak_lr * step / 40 for step in range(1, max_steps + 1)])


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_updates_of_adam_are_the_formula_of_its_paper(decay):
    """Kingma and Ba 2015, algorithm 1, with betas and an epsilon that show; with weight decay Loshchilov and Hutter
    2019, algorithm 2."""
    torch.manual_seed(1)
    model = nn.Linear(3, 2, bias=False).double()
    weights = model.weight.detach().clone()
    chosen = settings(adam_beta1=0.7, adam_beta2=0.8, adam_epsilon=0.05, weight_decay=decay)
    optimizer = build_optimizer(model, chosen)
    mean = square = torch.zeros_like(weights)
    for step in range(1, 5):
        gradient = torch.randn_like(weights)
        rate = 0.1 * step
        optimizer.param_groups[0]["lr"] = rate
        model.weight.grad = gradient.clone()
        optimizer.step()

        mean = 0.7 * mean + 0.3 * gradient
        square = 0.8 * square + 0.2 * gradient**2
        corrected_mean, corrected_square = mean / (1 - 0.7**step), square / (1 - 0.8**step)
        weights = weights - rate * (corrected_mean / (corrected_square.sqrt() + 0.05) + decay * weights)
        torch.testing.assert_close(model.weight.detach(), weights)


def test_the_optimizer_moves_every_weight_and_begins_with_the_peak_rate():
    """Without weight decay, a weight whose gradient is 0 stays."""
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    optimizer = build_optimizer(model, settings(peak_lr=0.25))
    assert [group["lr"] for group in optimizer.param_groups] == [0.25]
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert all(torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert not any(torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("schedule", get_args(TrainingConfig.model_fields["schedule"].annotation))
def test_a_schedule_depends_on_its_end_if_another_end_changes_its_rates(schedule):
    """Every schedule that the settings know is asked, so that none is forgotten."""
    shorter, longer = (settings(schedule=schedule, max_steps=steps) for steps in (400, 500))
    rates = [[learning_rate(step, each) for step in range(1, 401)] for each in (shorter, longer)]
    assert depends_on_end(shorter) == (rates[0] != rates[1])
