"""The loss of R-Drop (Liang et al. 2021, arXiv 2106.14448), which never holds all logits at once.

N target tokens  D model width  V vocabulary
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.kernels.cross_entropy import LossWithGradients, add_product, with_bias

CHUNK_LOGITS = 4_000_000  # the most logits of a chunk of both passes


def r_drop(
    first_ND: Tensor,
    second_ND: Tensor,
    output_VD: Tensor,
    labels_N: Tensor,
    smoothing: float,
    alpha: float,
    bias_V: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean of both passes' label-smoothed cross-entropies + alpha / 4 (KL(P1 || P2) + KL(P2 || P1)), over N.

    This is half of the paper's eq. 4, summed over tokens: `alpha` is the paper's (5 for translation), and each token
    counts once. If both passes are the same, it equals `training.loss.label_smoothed`. The paper's formula has no label
    smoothing, but its code has. The second result is the mean of both passes' losses without smoothing; it has no
    gradient. Only one chunk of tokens has logits at a time. The forward pass also computes the gradients.
    """
    passes_2ND, output_VD = with_bias(torch.stack([first_ND, second_ND]), output_VD, bias_V)
    sums: tuple[Tensor, Tensor] = _RDrop.apply(  # type: ignore[no-untyped-call]
        passes_2ND, output_VD, labels_N, smoothing, alpha
    )
    return sums


class _RDrop(LossWithGradients):
    """With log-probabilities l1 = log p1 and l2 = log p2, and d = l1 - l2, the divergences of a token are

    KL(P1 || P2) = sum p1 d,  KL(P2 || P1) = - sum p2 d,
    d (KL(P1 || P2) + KL(P2 || P1)) / d z1 = p1 (d - KL(P1 || P2)) + p1 - p2,  and with 1 and 2 exchanged for z2.
    """

    @staticmethod
    def forward(
        ctx: Any, passes_2ND: Tensor, output_VD: Tensor, labels_N: Tensor, smoothing: float, alpha: float
    ) -> tuple[Tensor, Tensor]:
        weight_VD = output_VD.to(passes_2ND.dtype)
        gradient_2ND, output_gradient_VD = torch.empty_like(passes_2ND), torch.zeros_like(output_VD)
        sums_2 = torch.zeros(2, dtype=output_VD.dtype, device=labels_N.device)
        chunk = max(1, CHUNK_LOGITS // (2 * len(output_VD)))
        for start in range(0, len(labels_N), chunk):
            rows = slice(start, start + chunk)
            part_2ND = passes_2ND[:, rows]
            logits_2NV = F.linear(part_2ND, weight_VD)
            smoothed, nll, gradients = _loss_and_gradients(logits_2NV, labels_N[rows, None], smoothing, alpha)
            sums_2 += torch.stack([smoothed, nll])
            if any(ctx.needs_input_grad):
                for number, gradient_NV in enumerate(gradients):
                    gradient_NV = gradient_NV.to(weight_VD.dtype)
                    torch.mm(gradient_NV, weight_VD, out=gradient_2ND[number, rows])
                    add_product(output_gradient_VD, gradient_NV.T, part_2ND[number])
        ctx.save_for_backward(gradient_2ND, output_gradient_VD)
        smoothed, nll = sums_2
        ctx.mark_non_differentiable(nll)
        return smoothed, nll


def _loss_and_gradients(
    logits_2NV: Tensor, labels_N1: Tensor, smoothing: float, alpha: float
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Both sums of `r_drop`, and the first's gradients for the logits of each pass, NV. Overwrites the logits."""
    precision = torch.promote_types(logits_2NV.dtype, torch.float32)
    log_probs_2NV = logits_2NV.to(precision)
    torch.log_softmax(log_probs_2NV, dim=-1, out=log_probs_2NV)
    nll = -log_probs_2NV.gather(2, labels_N1.expand(2, -1, 1)).sum() / 2
    smoothed = (1 - smoothing) * nll - smoothing / 2 * log_probs_2NV.mean(dim=-1).sum()

    change_NV = log_probs_2NV[0] - log_probs_2NV[1]
    first_NV, second_NV = log_probs_2NV.exp_()
    forwards_N1 = torch.linalg.vecdot(first_NV, change_NV)[:, None]
    backwards_N1 = -torch.linalg.vecdot(second_NV, change_NV)[:, None]
    weight = alpha / 4
    first_gradient_NV = change_NV.mul_(weight) + (weight * (1 - forwards_N1) + 1 / 2)
    second_gradient_NV = change_NV.neg_().add_(weight * (1 - backwards_N1) + 1 / 2)
    gradients = first_gradient_NV, second_gradient_NV
    for gradient_NV, own_NV, other_NV in zip(gradients, (first_NV, second_NV), (second_NV, first_NV), strict=True):
        gradient_NV.mul_(own_NV).sub_(other_NV, alpha=weight).sub_(smoothing / 2 / logits_2NV.shape[2])
        gradient_NV.scatter_add_(1, labels_N1, gradient_NV.new_full(labels_N1.shape, (smoothing - 1) / 2))
    return smoothed + weight * (forwards_N1 + backwards_N1).sum(), nll, gradients
