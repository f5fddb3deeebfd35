"""Label-smoothed cross-entropy of a large vocabulary, which never holds all logits at once.

`chunked_cross_entropy` equals `training.loss.label_smoothed`, which is the formula to read.

N target tokens  D model width  V vocabulary
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer_mt.base.languages import PAD
from transformer_mt.kernels.packed_attention import HAS_TRITON

# The most tokens of a chunk. Logits of fewer tokens fit better into caches; but each chunk adds to the complete
# gradient of the output matrix, VD, which is as large as the logits of D tokens.
CHUNK_TOKENS, CHUNK_TOKENS_CUDA = 512, 4096
CHUNK_LOGITS, CHUNK_LOGITS_CUDA = 16_000_000, 128_000_000  # the most logits of a chunk: 64 MB in fp32, 256 MB in bf16
TILE_ROWS = 128  # rows that a GPU multiplies at a time: fewer take as long
MORE_FEATURES = 8  # for a bias: GPUs multiply fast if the number of features stays a multiple of 8


def chunked_cross_entropy(
    features_ND: Tensor, output_VD: Tensor, labels_N: Tensor, smoothing: float, bias_V: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The smoothed and the unsmoothed loss, summed over N; only the smoothed one has a gradient.

    The first equals F.cross_entropy(F.linear(features, output, bias), labels, label_smoothing=smoothing,
    reduction="sum", ignore_index=PAD), the second equals it with smoothing 0. Only one chunk of tokens has logits at a
    time. The forward pass also computes the gradients, while these logits exist.
    """
    features_ND, output_VD = with_bias(features_ND, output_VD, bias_V)
    if features_ND.is_cuda:
        chunk = equal_chunks(len(features_ND), min(CHUNK_TOKENS_CUDA, max(1, CHUNK_LOGITS_CUDA // len(output_VD))))
    else:
        chunk = min(CHUNK_TOKENS, max(1, CHUNK_LOGITS // len(output_VD)))
    sums: tuple[Tensor, Tensor] = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        features_ND, output_VD, labels_N, smoothing, chunk
    )
    return sums


def with_bias(features_ND: Tensor, output_VD: Tensor, bias_V: Tensor | None) -> tuple[Tensor, Tensor]:
    """Features and output matrix that have the bias in them: it is the weight of one more feature, which is 1."""
    if not torch.is_grad_enabled():  # otherwise ctx.needs_input_grad would be true for weights
        features_ND, output_VD = features_ND.detach(), output_VD.detach()
    if bias_V is None:
        return features_ND, output_VD
    ones_ND = F.pad(features_ND, (0, MORE_FEATURES), value=1.0)  # all but the first of the new ones have weight 0
    return ones_ND, torch.cat([output_VD, F.pad(bias_V[:, None], (0, MORE_FEATURES - 1))], dim=1)


def equal_chunks(num_rows: int, most: int) -> int:
    """The rows of a chunk: the fewest chunks of at most `most` rows get one size, in complete tiles except the last."""
    num_chunks = max(1, -(-num_rows // most))
    tiles = -(-num_rows // (num_chunks * TILE_ROWS))
    return max(1, tiles) * TILE_ROWS


def softmax_and_gradient(logits_NV: Tensor, labels_N1: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns log sum_j exp z_j and z_y, N1, and softmax(z) - (1 - eps) e_y, NV. Overwrites the logits.

    On a GPU by one kernel, which needs no other NV of memory.
    """
    if logits_NV.is_cuda and HAS_TRITON:
        from transformer_mt.kernels.gradients import softmax_and_gradient_on_gpu

        return softmax_and_gradient_on_gpu(logits_NV, labels_N1, smoothing)
    gradient_type, logits_NV = logits_NV.dtype, logits_NV.float()
    label_logit_N1 = logits_NV.gather(1, labels_N1)
    top_logit_N1 = logits_NV.amax(dim=-1, keepdim=True)
    probs_NV = torch.softmax(logits_NV, dim=-1, out=logits_NV)
    # log sum exp comes from the most probable word, which never has probability 0: this saves a second exponential.
    log_sum_N1 = top_logit_N1 - probs_NV.amax(dim=-1, keepdim=True).log()
    gradient_NV = probs_NV.scatter_add_(1, labels_N1, torch.full_like(label_logit_N1, smoothing - 1))
    return log_sum_N1, label_logit_N1, gradient_NV.to(gradient_type)


class _ChunkedCrossEntropy(Function):
    """loss = log sum_j exp z_j - (1 - eps) z_y - eps mean_j z_j;  d loss / d z = softmax(z) - (1 - eps) e_y - eps / V.

    The last terms need no pass over the logits: as z_ij = x_i w_j, sum_ij z_ij = (sum_i x_i) (sum_j w_j).
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

        log_sums, label_logits = [features_sum_D.new_zeros(0, 1)], [features_sum_D.new_zeros(0, 1)]
        for start in range(0, len(labels_N), chunk):
            rows = slice(start, start + chunk)
            logits_NV = F.linear(features_ND[rows], weight_VD)
            log_sum_N1, label_logit_N1, gradient_NV = softmax_and_gradient(logits_NV, labels_N[rows, None], smoothing)
            log_sums.append(log_sum_N1)
            label_logits.append(label_logit_N1)
            if with_gradients:
                torch.mm(gradient_NV, weight_VD, out=features_gradient_ND[rows])
                add_product(output_gradient_VD, gradient_NV.T, features_ND[rows])
            del logits_NV, gradient_NV  # frees memory for the next chunk
        if with_gradients:
            features_gradient_ND.sub_(share * weight_sum_D).masked_fill_(padding_N1, 0.0)
            ctx.save_for_backward(features_gradient_ND, output_gradient_VD)
        log_sum_N1, label_logit_N1 = torch.cat(log_sums), torch.cat(label_logits)  # the latter is 0 at padding
        nll = (log_sum_N1 - label_logit_N1).masked_fill_(padding_N1, 0.0).sum()
        ctx.mark_non_differentiable(nll)
        return nll + smoothing * label_logit_N1.sum() - share * features_sum_D.dot(weight_sum_D), nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        features_gradient_ND, output_gradient_VD = ctx.saved_tensors
        return features_gradient_ND * gradients[0], output_gradient_VD * gradients[0], None, None, None


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Equals total += left @ right, summed in the precision of the total."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    elif total.is_cuda:  # in PyTorch, only CUDA multiplies in bf16 and adds in fp32
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total += left @ right
