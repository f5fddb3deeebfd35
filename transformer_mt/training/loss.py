"""Label-smoothed cross-entropy, as sums and counts.

N target tokens  D model width  V vocabulary
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

CHUNK_LOGITS = 16_000_000  # so many logits at a time: 64 MB in fp32


class LossSums(NamedTuple):
    """Sums over tokens, in nats."""

    smoothed: Tensor
    """What is minimised; carries the gradient."""
    nll: Tensor
    """Unsmoothed: perplexity = exp(nll / tokens)."""


def label_smoothed(features_ND: Tensor, output_VD: Tensor, labels_N: Tensor, smoothing: float) -> LossSums:
    """Cross-entropy of softmax(features output^T) against labels softened towards uniform, summed over N.

    Each label keeps 1 - smoothing and shares `smoothing` over all V words, its own included: Szegedy et
    al. 2016, sec. 7; equals F.cross_entropy(label_smoothing=…, reduction="sum"). Others divide by V - 1
    (fairseq) or V - 2 (annotated-transformer): losses do not compare. All N labels must be real tokens.

    The logits exist a chunk at a time: with them at hand the gradients are made too, in the forward pass.
    """
    if not torch.is_grad_enabled():  # a Function sees only that its inputs, such as weights, require gradients
        features_ND, output_VD = features_ND.detach(), output_VD.detach()
    smoothed, nll = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        features_ND, output_VD, labels_N, smoothing
    )
    return LossSums(smoothed, nll)


class _ChunkedCrossEntropy(Function):
    """loss = lse(z) - (1 - eps) z_y - eps mean_j z_j;  d loss / d z = softmax(z) - eps / V - (1 - eps) e_y."""

    @staticmethod
    def forward(
        ctx: Any, features_ND: Tensor, output_VD: Tensor, labels_N: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        num_words = len(output_VD)
        with_gradients = any(ctx.needs_input_grad)
        weight_VD = output_VD.to(features_ND.dtype)
        smoothed = features_ND.new_zeros((), dtype=torch.float32)
        nll = torch.zeros_like(smoothed)
        features_gradient_ND = torch.empty_like(features_ND) if with_gradients else None
        output_gradient_VD = torch.zeros_like(output_VD) if with_gradients else None

        chunk = max(1, CHUNK_LOGITS // num_words)
        for start in range(0, len(labels_N), chunk):
            rows = slice(start, start + chunk)
            labels_N1 = labels_N[rows, None]
            log_probs_NV = F.linear(features_ND[rows], weight_VD).float().log_softmax(dim=-1)
            label_nll = -log_probs_NV.gather(1, labels_N1).sum()
            nll += label_nll
            smoothed += (1 - smoothing) * label_nll - smoothing / num_words * log_probs_NV.sum()
            if features_gradient_ND is None or output_gradient_VD is None:
                continue
            gradient_NV = log_probs_NV.exp_().sub_(smoothing / num_words)
            gradient_NV.scatter_add_(1, labels_N1, torch.full_like(labels_N1, smoothing - 1, dtype=torch.float32))
            gradient_NV = gradient_NV.to(features_ND.dtype)
            torch.mm(gradient_NV, weight_VD, out=features_gradient_ND[rows])
            output_gradient_VD += gradient_NV.T @ features_ND[rows]
        ctx.save_for_backward(features_gradient_ND, output_gradient_VD)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        features_gradient_ND, output_gradient_VD = ctx.saved_tensors
        scale = gradients[0]
        return features_gradient_ND * scale, output_gradient_VD * scale, None, None
