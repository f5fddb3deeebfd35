"""The schedules of the learning rate, as a pure function of the step, and the optimizers: Adam and Muon.

B matrices of one shape  M rows  N columns
"""

import math
from collections import defaultdict
from typing import assert_never

import torch
from torch import Tensor, nn

from transformer_mt.settings.training_settings import TrainingConfig


def learning_rate(step: float, settings: TrainingConfig) -> float:
    """The rate of update `step`, counted from 1. All rise linearly to the peak at `warmup_steps`."""
    peak_lr, warmup_steps, end = settings.peak_lr, settings.warmup_steps, settings.max_steps + 1
    match settings.schedule:
        case "inverse_sqrt":  # Vaswani et al. 2017, eq. 3, where peak_lr = (d_model * warmup_steps) ** -0.5
            return peak_lr * min(step / warmup_steps, math.sqrt(warmup_steps / step))
        case "linear":  # down to zero just after `max_steps`
            return peak_lr * min(step / warmup_steps, (end - step) / max(1, end - warmup_steps))
        case "cosine":  # Loshchilov and Hutter 2017 (SGDR), eq. 5, with one period; down to zero just after `max_steps`
            since_peak = max(0, step - warmup_steps) / max(1, end - warmup_steps)
            return peak_lr * min(step / warmup_steps, (1 + math.cos(math.pi * since_peak)) / 2)
        case "constant":
            return peak_lr * min(1.0, step / warmup_steps)
        case _:
            assert_never(settings.schedule)


def depends_on_end(settings: TrainingConfig) -> bool:
    """Whether another end would have changed the rates of earlier updates. Then a run must keep its max_steps."""
    return settings.schedule not in ("inverse_sqrt", "constant")


def build_optimizer(model: nn.Module, settings: TrainingConfig) -> torch.optim.Optimizer:
    """Adam (sec. 5.3), or Muon; its rate is set before each update. Weight decay is that of AdamW."""
    adam = settings.peak_lr, (settings.adam_beta1, settings.adam_beta2), settings.adam_epsilon
    if settings.optimizer == "muon":
        return Muon(model, *adam, settings.weight_decay)
    return torch.optim.AdamW(model.parameters(), *adam, settings.weight_decay, fused=True)


MOMENTUM = 0.95
STEPS = 5  # of Newton and Schulz
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Adam):
    """Muon (Jordan et al. 2024) for the matrices inside the layers; Adam for embeddings, biases and normalisation.

    An update of a matrix has the usual size of one of Adam, so both share the learning rate: 0.2 sqrt(max(M, N)) times
    the orthogonal matrix. Before it, the matrix shrinks by rate times `decay` (Liu et al. 2025, "Muon is Scalable for
    LLM Training", sec. 2.2).

    (torch.optim.Muon computes one matrix after the other, in bf16, which is slow on CPUs.)
    """

    def __init__(self, model: nn.Module, lr: float, betas: tuple[float, float], eps: float, decay: float) -> None:
        super().__init__(model.parameters(), lr, betas, eps, fused=True)
        self.decay = decay
        embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
        self.shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for weight in model.parameters():
            if weight.dim() == 2 and weight not in embeddings:
                self.shapes[weight.shape].append(weight)
                self.state[weight]["momentum"] = torch.zeros_like(weight)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change all weights that have a gradient, unless `found_inf` is 1."""
        rate, found_inf = self.param_groups[0]["lr"], self.found_inf  # type: ignore[attr-defined]
        for shape, weights in self.shapes.items():
            learnt = [weight for weight in weights if weight.grad is not None]
            if not learnt:
                continue
            gradient_BMN = torch.stack([weight.grad for weight in learnt])  # type: ignore[misc]
            momenta = [self.state[weight]["momentum"] for weight in learnt]
            before_BMN = torch.stack(momenta)
            momentum_BMN = before_BMN.lerp(gradient_BMN, 1 - MOMENTUM)
            change_BMN = orthogonal(gradient_BMN.lerp(momentum_BMN, MOMENTUM))  # with Nesterov's momentum
            change_BMN = torch.where(found_inf > 0, 0.0, change_BMN * (-rate * 0.2 * max(shape) ** 0.5))
            momentum_BMN = torch.where(found_inf > 0, before_BMN, momentum_BMN)
            # In place, because a captured update always finds the tensors at the same places.
            if self.decay:
                torch._foreach_mul_(learnt, 1 - (found_inf == 0) * (rate * self.decay))
            torch._foreach_add_(learnt, change_BMN.unbind())
            torch._foreach_copy_(momenta, momentum_BMN.unbind())
            for weight in learnt:
                weight.grad = None  # so that Adam leaves this weight as it is
        super().step()


def orthogonal(matrix_BMN: Tensor) -> Tensor:
    """Roughly the nearest orthogonal matrix of each: U V^T if it is U S V^T. Its singular values are about 0.7 to 1.2.

    Five iterations of Newton and Schulz with a polynomial of degree 5 (Jordan et al. 2024).
    """
    if matrix_BMN.shape[1] > matrix_BMN.shape[2]:
        transposed_BNM: Tensor = orthogonal(matrix_BMN.mT)
        return transposed_BNM.mT
    a, b, c = COEFFICIENTS
    x_BMN: Tensor = matrix_BMN / matrix_BMN.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        square_BMM = x_BMN @ x_BMN.mT
        x_BMN = torch.baddbmm(x_BMN, torch.baddbmm(square_BMM, square_BMM, square_BMM, beta=b, alpha=c), x_BMN, beta=a)
    return x_BMN
