"""The schedules of the learning rate, as pure functions of the step, and the optimizer."""

import math
from typing import assert_never

import torch
from torch import nn

from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.muon import Muon


def inverse_sqrt(step: int, *, peak_lr: float, warmup_steps: int) -> float:
    """Vaswani et al. 2017, eq. 3, with any peak; the paper has peak_lr = (d_model * warmup_steps) ** -0.5.

    `step` counts updates from 1.
    """
    return peak_lr * min(step / warmup_steps, math.sqrt(warmup_steps / step))


def linear(step: int, *, peak_lr: float, warmup_steps: int, max_steps: int) -> float:
    """Linear up to the peak at `warmup_steps`, then linear down to zero just after `max_steps`."""
    return peak_lr * min(step / warmup_steps, (max_steps + 1 - step) / max(1, max_steps + 1 - warmup_steps))


def cosine(step: int, *, peak_lr: float, warmup_steps: int, max_steps: int) -> float:
    """Linear up to the peak at `warmup_steps`, then down by half a cosine to zero just after `max_steps`.

    Loshchilov and Hutter 2017 (SGDR), eq. 5, with one period and without restarts.
    """
    since_peak = max(0, step - warmup_steps) / max(1, max_steps + 1 - warmup_steps)
    return peak_lr * min(step / warmup_steps, (1 + math.cos(math.pi * since_peak)) / 2)


def constant(step: int, *, peak_lr: float, warmup_steps: int) -> float:
    """Linear up to the peak at `warmup_steps`, then constant."""
    return peak_lr * min(1.0, step / warmup_steps)


def cooldown(step: int, *, peak_lr: float, warmup_steps: int, cooldown_steps: int, max_steps: int) -> float:
    """A trapezoid: the peak until the last `cooldown_steps` updates, then linear down to zero after `max_steps`.

    Hägele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", sec. 3,
    with a linear cooldown; also known as warm-up, stable, decay.
    """
    return peak_lr * min(1.0, step / warmup_steps, (max_steps + 1 - step) / (cooldown_steps + 1))


def learning_rate(step: int, settings: TrainingConfig) -> float:
    """The rate of update `step`, counted from 1."""
    peak_lr, warmup_steps, max_steps = settings.peak_lr, settings.warmup_steps, settings.max_steps
    match settings.schedule:
        case "inverse_sqrt":
            return inverse_sqrt(step, peak_lr=peak_lr, warmup_steps=warmup_steps)
        case "linear":
            return linear(step, peak_lr=peak_lr, warmup_steps=warmup_steps, max_steps=max_steps)
        case "cosine":
            return cosine(step, peak_lr=peak_lr, warmup_steps=warmup_steps, max_steps=max_steps)
        case "constant":
            return constant(step, peak_lr=peak_lr, warmup_steps=warmup_steps)
        case "cooldown":
            cooldown_steps = settings.cooldown_steps
            return cooldown(
                step, peak_lr=peak_lr, warmup_steps=warmup_steps, cooldown_steps=cooldown_steps, max_steps=max_steps
            )
        case _:
            assert_never(settings.schedule)


def depends_on_end(settings: TrainingConfig) -> bool:
    """Whether another max_steps would have changed the rates of earlier updates. Then a run must keep its max_steps."""
    return settings.schedule not in ("inverse_sqrt", "constant")


def build_optimizer(model: nn.Module, settings: TrainingConfig) -> torch.optim.Optimizer:
    """Adam (sec. 5.3), or Muon; its rate is set before each update."""
    if settings.optimizer == "muon":
        return Muon(model, settings)
    return torch.optim.Adam(
        model.parameters(),
        lr=settings.peak_lr,
        betas=(settings.adam_beta1, settings.adam_beta2),
        eps=settings.adam_epsilon,
        fused=True,
    )
