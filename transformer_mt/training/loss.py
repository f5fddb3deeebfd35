"""The loss: label-smoothed cross-entropy, as sums over tokens; and of a micro-batch, in faster forms if there are any.

B sentences  T target positions  N real target tokens  D model width  V vocabulary
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.base.languages import PAD
from transformer_mt.batches.packing import MicroBatch, PackedBatch
from transformer_mt.kernels.device import Device
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.layouts import Packed


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


Features = Callable[..., Tensor]
"""`Seq2Seq.features`, which takes packed sentences if the model supports them."""

# Compiling takes about a minute: as long as this many micro-batches lose without it.
PATIENCE_CUDA = 1000


class CommonShapes:
    """Equals `features` of packed sentences. Common shapes use `compiled`, which compiles once for each shape.

    The largest shape so far is compiled at once, because nearly all micro-batches have it. A smaller shape (of the last
    micro-batch of an epoch, or of a split one) is compiled when it has come more often than `patience`.
    """

    def __init__(self, features: Features, compiled: Features, patience: int) -> None:
        self._features, self._compiled, self._patience = features, compiled, patience
        self._seen: Counter[tuple[int, int]] = Counter()

    def __call__(self, source: Packed | Tensor, target: Packed | Tensor) -> Tensor:
        """ND."""
        assert isinstance(source, Packed) and isinstance(target, Packed), "padded batches have too many shapes"
        shape = (len(source.tokens), len(target.tokens))
        self._seen[shape] += 1
        is_common = self._seen[shape] > self._patience or sum(shape) == max(map(sum, self._seen))
        return (self._compiled if is_common else self._features)(source, target)


def patience_on(device: Device) -> int:
    """How often a shape must come before it is compiled; 0 on a CPU, where a resumed run must round in the same way."""
    return PATIENCE_CUDA if device.torch_device.type == "cuda" else 0


class BatchLoss(nn.Module):
    """The loss of the real target tokens of a micro-batch, each predicted from those before it (teacher forcing)."""

    def __init__(self, model: Seq2Seq, device: Device, smoothing: float, compiled: bool) -> None:
        super().__init__()
        self.model, self.device, self.smoothing = model, device, smoothing
        self.compiled: Features | None = None
        if compiled:
            quick = torch.compile(model.features, dynamic=False)
            self.compiled = CommonShapes(model.features, quick, patience_on(device))

    def forward(self, batch: MicroBatch) -> LossSums:
        batch = batch.to(self.device.torch_device)
        features = self.compiled or self.model.features
        features_ND, labels_N = features_and_labels(self.model, features, batch, self.device)
        loss = self.model.faster(label_smoothed)
        return LossSums(*loss(features_ND, self.model.output_VD, labels_N, self.smoothing, self.model.output_bias_V))


def features_and_labels(model: Seq2Seq, features: Features, batch: MicroBatch, device: Device) -> tuple[Tensor, Tensor]:
    """The decoder's features for each target token, ND, and the token itself as its label, N.

    Leaves out the PAD of padded rows. Packed batches keep the PAD of their dummies, so that all have the same shape.
    """
    with device.autocast():
        if isinstance(batch, PackedBatch):
            longest = batch.shape.max_length
            source = Packed(batch.source_N, batch.source_offsets, batch.source_positions_N, longest)
            target = Packed(batch.decoder_input_N, batch.target_offsets, batch.target_positions_N, longest)
            return features(source, target).to(device.dtype), batch.labels_N
        features_ND = model.faster(real_features)(model, batch.source_BS, batch.decoder_input_BT)
    return features_ND.to(device.dtype), batch.labels_BT[batch.decoder_input_BT != PAD]
