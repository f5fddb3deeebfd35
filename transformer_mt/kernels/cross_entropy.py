"""Label-smoothed cross-entropy of a large vocabulary, which never holds all logits at once.

`chunked_cross_entropy` equals `training.loss.plain_label_smoothed`, which is the formula to read.

N target tokens  D model width  V vocabulary
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer_mt.vocabulary import PAD

# Tokens of a chunk. The logits of fewer tokens stay nearer to the processor; but each chunk adds to the whole
# gradient of the output matrix, VD, which is as large as the logits of D tokens.
CHUNK_TOKENS, CHUNK_TOKENS_CUDA = 512, 4096
CHUNK_LOGITS, CHUNK_LOGITS_CUDA = 16_000_000, 128_000_000  # at most: 64 MB in fp32, 256 MB in bf16


def chunked_cross_entropy(
    features_ND: Tensor, output_VD: Tensor, labels_N: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The smoothed and the unsmoothed loss, summed over N; only the smoothed one carries a gradient.

    The first equals
    F.cross_entropy(F.linear(features, output), labels, label_smoothing=smoothing, reduction="sum", ignore_index=PAD),
    the second equals it with smoothing 0. Logits exist for one chunk of tokens at a time; the gradients are computed
    in the forward pass, while they exist.
    """
    if not torch.is_grad_enabled():  # a Function sees only that its inputs, such as weights, require gradients
        features_ND, output_VD = features_ND.detach(), output_VD.detach()
    chunk = min(CHUNK_TOKENS, max(1, CHUNK_LOGITS // len(output_VD)))
    if features_ND.is_cuda:
        chunk = min(CHUNK_TOKENS_CUDA, max(1, CHUNK_LOGITS_CUDA // len(output_VD)))
        features_ND, labels_N = in_whole_chunks(features_ND, labels_N, chunk)
    sums: tuple[Tensor, Tensor] = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        features_ND, output_VD, labels_N, smoothing, chunk
    )
    return sums


def in_whole_chunks(features_ND: Tensor, labels_N: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """Adds rows of zeros with label PAD at the end: all chunks then have one shape, which is compiled once."""
    missing = -len(labels_N) % chunk
    return F.pad(features_ND, (0, 0, 0, missing)), F.pad(labels_N, (0, missing), value=PAD)


def softmax_and_gradient(logits_NV: Tensor, labels_N1: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns log sum_j exp z_j and z_y, both N1, and softmax(z) - (1 - eps) e_y, NV, all computed in fp32.

    Overwrites the logits.
    """
    gradient_type, logits_NV = logits_NV.dtype, logits_NV.float()
    label_logit_N1 = logits_NV.gather(1, labels_N1)
    top_logit_N1 = logits_NV.amax(dim=-1, keepdim=True)
    probs_NV = torch.softmax(logits_NV, dim=-1, out=logits_NV)
    # log sum exp, from the most probable word, whose probability is never 0: no second exponential of all logits.
    log_sum_N1 = top_logit_N1 - probs_NV.amax(dim=-1, keepdim=True).log()
    gradient_NV = probs_NV.scatter_add_(1, labels_N1, torch.full_like(label_logit_N1, smoothing - 1))
    return log_sum_N1, label_logit_N1, gradient_NV.to(gradient_type)


@cache
def compiled_softmax_and_gradient() -> Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]:
    """The same, compiled for a GPU: one or two kernels, which read and write the logits less often."""
    return torch.compile(softmax_and_gradient, dynamic=False, fullgraph=True)


class _ChunkedCrossEntropy(Function):
    """loss = log sum_j exp z_j - (1 - eps) z_y - eps mean_j z_j;  d loss / d z = softmax(z) - (1 - eps) e_y - eps / V.

    The last terms need no pass over the logits: sum_ij z_ij = (sum_i x_i) (sum_j w_j), for z_ij = x_i w_j.
    """

    @staticmethod
    def forward(
        ctx: Any, features_ND: Tensor, output_VD: Tensor, labels_N: Tensor, smoothing: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        with_gradients = any(ctx.needs_input_grad)
        padding_N1 = labels_N[:, None] == PAD
        features_ND = features_ND.masked_fill(padding_N1, 0.0)
        weight_VD = output_VD.to(features_ND.dtype)
        share = smoothing / len(output_VD)
        features_sum_D, weight_sum_D = (x.sum(dim=0, dtype=torch.float32) for x in (features_ND, weight_VD))
        if with_gradients:
            features_gradient_ND = torch.empty_like(features_ND)
            output_gradient_VD = (-share * features_sum_D).repeat(len(output_VD), 1)

        nll = label_logits = features_sum_D.new_zeros(())
        to_gradient = compiled_softmax_and_gradient() if features_ND.is_cuda else softmax_and_gradient
        for start in range(0, len(labels_N), chunk):
            rows = slice(start, start + chunk)
            logits_NV = F.linear(features_ND[rows], weight_VD)
            log_sum_N1, label_logit_N1, gradient_NV = to_gradient(logits_NV, labels_N[rows, None], smoothing)
            nll = nll + (log_sum_N1 - label_logit_N1).masked_fill_(padding_N1[rows], 0.0).sum()
            label_logits = label_logits + label_logit_N1.sum()  # zeros at padding, like its features
            if with_gradients:
                torch.mm(gradient_NV, weight_VD, out=features_gradient_ND[rows])
                add_product(output_gradient_VD, gradient_NV.T, features_ND[rows])
        if with_gradients:
            features_gradient_ND.sub_(share * weight_sum_D).masked_fill_(padding_N1, 0.0)
            ctx.save_for_backward(features_gradient_ND, output_gradient_VD)
        ctx.mark_non_differentiable(nll)
        return nll + smoothing * label_logits - share * features_sum_D.dot(weight_sum_D), nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        features_gradient_ND, output_gradient_VD = ctx.saved_tensors
        scale = gradients[0]
        return features_gradient_ND * scale, output_gradient_VD * scale, None, None, None


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Equals total += left @ right, summed in the precision of the total."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
