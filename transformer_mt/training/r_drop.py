"""R-Drop: trains two passes over the same tokens, with different dropout, to agree (Liang et al. 2021).

arXiv 2106.14448.

N target tokens  D model width  V vocabulary
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from transformer_mt.kernels.cross_entropy import CHUNK_LOGITS
from transformer_mt.training.loss import LossSums, smoothed_nll


def r_drop(
    first_ND: Tensor,
    second_ND: Tensor,
    output_VD: Tensor,
    labels_N: Tensor,
    smoothing: float,
    alpha: float,
    bias_V: Tensor | None = None,
) -> LossSums:
    """The mean of both passes' label-smoothed cross-entropies + alpha / 4 (KL(P1 || P2) + KL(P2 || P1)), over N.

    That is half of the paper's eq. 4, summed over tokens: `alpha` is the paper's (5 for translation), and a token
    counts once, as in `label_smoothed`, which this is if both passes are the same. `nll` is the mean of both.
    Where the paper has the negative log-likelihood of the label, its code too has the smoothed one.

    The logits exist a chunk at a time, and once more in the backward pass.
    """
    smoothed = nll = torch.zeros((), device=first_ND.device)
    chunk = max(1, CHUNK_LOGITS // (2 * len(output_VD)))
    chunks = [torch.split(tensor, chunk) for tensor in (first_ND, second_ND, labels_N)]
    for first_ND, second_ND, labels_N in zip(*chunks, strict=True):
        part: LossSums = checkpoint(
            _sums,
            *(first_ND, second_ND, output_VD, labels_N, smoothing, alpha, bias_V),
            use_reentrant=False,
            preserve_rng_state=False,  # nothing here is random
        )
        smoothed, nll = smoothed + part.smoothed, nll + part.nll
    return LossSums(smoothed, nll)


def _sums(
    first_ND: Tensor,
    second_ND: Tensor,
    output_VD: Tensor,
    labels_N: Tensor,
    smoothing: float,
    alpha: float,
    bias_V: Tensor | None,
) -> LossSums:
    weight_VD = output_VD.to(first_ND.dtype)  # here, so that the chunks' gradients are summed in full precision
    bias_V = None if bias_V is None else bias_V.to(first_ND.dtype)
    precision = torch.promote_types(first_ND.dtype, torch.float32)
    first_NV = F.linear(first_ND, weight_VD, bias_V).log_softmax(dim=-1, dtype=precision)
    second_NV = F.linear(second_ND, weight_VD, bias_V).log_softmax(dim=-1, dtype=precision)
    first, second = (smoothed_nll(log_probs_NV, labels_N, smoothing) for log_probs_NV in (first_NV, second_NV))
    both_kl = ((first_NV.exp() - second_NV.exp()) * (first_NV - second_NV)).sum()
    return LossSums((first.smoothed + second.smoothed) / 2 + alpha / 4 * both_kl, (first.nll + second.nll) / 2)
