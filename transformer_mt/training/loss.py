"""The loss: label-smoothed cross-entropy, as sums over tokens.

B sentences  T target positions  N real target tokens  D model width  V vocabulary
"""

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from transformer_mt.base.languages import PAD
from transformer_mt.models.interface import Seq2Seq


class LossSums(NamedTuple):
    """Sums over tokens, in nats."""

    smoothed: Tensor
    """The loss that training minimises; has a gradient."""
    nll: Tensor
    """The same without label smoothing: perplexity = exp(nll / tokens)."""


def real_features(model: Seq2Seq, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
    """The decoder's features for each real target token, ND.

    This is teacher forcing: the token is predicted from the reference's tokens before it, not from the model's own.
    """
    return model.features(source_BS, decoder_input_BT)[decoder_input_BT != PAD]


def label_smoothed(
    features_ND: Tensor, output_VD: Tensor, labels_N: Tensor, smoothing: float, bias_V: Tensor | None = None
) -> LossSums:
    """The cross-entropy of softmax(features output^T + bias) against smoothed labels, summed over the N tokens.

    The smoothed label of a token gives 1 - smoothing to the word itself, and shares `smoothing` evenly among all V
    words, that word included (Szegedy et al. 2016, sec. 7). Equals F.cross_entropy(label_smoothing=smoothing,
    reduction="sum", ignore_index=PAD). fairseq divides by V - 1 instead, The Annotated Transformer by V - 2: their
    losses cannot be compared with these. Tokens whose label is PAD have no loss and no gradient.
    """
    real_N = labels_N != PAD
    logits_NV = F.linear(features_ND[real_N].to(output_VD.dtype), output_VD, bias_V)
    log_probs_NV = logits_NV.log_softmax(dim=-1)
    nll_N = -log_probs_NV.gather(1, labels_N[real_N, None]).squeeze(1)
    uniform_N = -log_probs_NV.mean(dim=-1)
    smoothed_N = (1 - smoothing) * nll_N + smoothing * uniform_N
    return LossSums(smoothed_N.sum(), nll_N.sum().detach())
