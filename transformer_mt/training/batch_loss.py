"""The loss of a micro-batch: the model inside it, in the faster forms that training takes where it can.

B sentences  T target positions  N real target tokens  D model width
"""

from torch import Tensor, nn

from transformer_mt.data.batching import Batch
from transformer_mt.data.packing import PackedBatch
from transformer_mt.device import Device
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.packed import Packed
from transformer_mt.training.common_shapes import Features, compiled_for_common_shapes
from transformer_mt.training.loss import LossSums, label_smoothed, real_features
from transformer_mt.training.r_drop import r_drop
from transformer_mt.vocabulary import PAD


class BatchLoss(nn.Module):
    """The loss of a micro-batch: of its real target tokens, each predicted from those before it (teacher forcing)."""

    def __init__(
        self, model: Seq2Seq, device: Device, smoothing: float, r_drop: float = 0.0, compiled: bool = False
    ) -> None:
        super().__init__()
        self.model, self.device, self.smoothing, self.r_drop = model, device, smoothing, r_drop
        self.compiled: Features | None = compiled_for_common_shapes(model.features, device) if compiled else None

    def forward(self, batch: Batch | PackedBatch, compiled: bool = True) -> LossSums:
        batch = batch.to(self.device.torch_device)
        features = self.compiled if self.compiled and compiled else self.model.features
        features_ND, labels_N = features_and_labels(self.model, features, batch, self.device)
        if not self.r_drop:
            return _label_smoothed(self.model, features_ND, labels_N, self.smoothing)
        second_ND, _ = features_and_labels(self.model, features, batch, self.device)
        first_ND, second_ND, labels_N = (x[labels_N != PAD] for x in (features_ND, second_ND, labels_N))
        output_VD, bias_V = self.model.output_VD, self.model.output_bias_V
        return r_drop(first_ND, second_ND, output_VD, labels_N, self.smoothing, self.r_drop, bias_V)


def batch_loss(model: Seq2Seq, batch: Batch, smoothing: float, device: Device) -> LossSums:
    """The loss of one pass over a batch that is on the device already."""
    features_ND, labels_N = features_and_labels(model, model.features, batch, device)
    return _label_smoothed(model, features_ND, labels_N, smoothing)


def features_and_labels(
    model: Seq2Seq, features: Features, batch: Batch | PackedBatch, device: Device
) -> tuple[Tensor, Tensor]:
    """The decoder's features of each target token, ND, and the token itself as its label, N.

    The PAD of padded rows is left out. Packed batches keep the PAD of their dummies, so that their shape stays.
    """
    with device.autocast():
        if isinstance(batch, PackedBatch):
            source = Packed(batch.source_N, batch.source_offsets, batch.source_positions_N, batch.max_length)
            target = Packed(batch.decoder_input_N, batch.target_offsets, batch.target_positions_N, batch.max_length)
            return features(source, target).to(device.dtype), batch.labels_N
        features_ND = model.faster(real_features)(model, batch.source_BS, batch.decoder_input_BT)
    return features_ND.to(device.dtype), batch.labels_BT[batch.decoder_input_BT != PAD]


def _label_smoothed(model: Seq2Seq, features_ND: Tensor, labels_N: Tensor, smoothing: float) -> LossSums:
    loss = model.faster(label_smoothed)
    return LossSums(*loss(features_ND, model.output_VD, labels_N, smoothing, model.output_bias_V))
