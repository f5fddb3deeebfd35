"""All that an update changes: the model inside its loss, which has faster forms, the optimizer, a moving average.

B sentences  T target positions  N real target tokens  D model width
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from transformer_mt.base.languages import PAD
from transformer_mt.batches.packing import MicroBatch, PackedBatch
from transformer_mt.kernels.device import Device
from transformer_mt.kernels.linear import rounded_weights
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.layouts import Packed
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.distributed import Ranks, is_sharded
from transformer_mt.training.graphs import Graphs
from transformer_mt.training.loss import LossSums, label_smoothed, real_features
from transformer_mt.training.out_of_memory import Room

Features = Callable[..., Tensor]
"""`Seq2Seq.features`, which takes packed sentences if the model supports them."""


class BatchLoss(nn.Module):
    """The loss of the real target tokens of a micro-batch, each predicted from those before it (teacher forcing)."""

    def __init__(self, model: Seq2Seq, device: Device, smoothing: float, compiled: bool) -> None:
        super().__init__()
        self.model, self.device, self.smoothing = model, device, smoothing
        self.scaler = GradScaler(device.torch_device.type, enabled=device.dtype == torch.float16)
        # For each shape of a packed batch, of which there are few, PyTorch compiles anew.
        self.features: Features = torch.compile(model.features, dynamic=False) if compiled else model.features

    def forward(self, batch: MicroBatch) -> LossSums:
        batch = batch.to(self.device.torch_device)
        # A GPU rounds all weights together. With FSDP, this rank does not have those of other ranks here.
        is_half = self.device.torch_device.type == "cuda" and self.device.dtype != torch.float32
        with rounded_weights(self.model, self.device.dtype) if is_half and not is_sharded(self) else nullcontext():
            features_ND, labels_N = features_and_labels(self.model, self.features, batch, self.device)
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
        real_BT = batch.decoder_input_BT != PAD
        if not real_BT.is_cuda:
            features_ND = model.faster(real_features)(model, batch.source_BS, batch.decoder_input_BT)
            return features_ND.to(device.dtype), batch.labels_BT[real_BT]
        # A mask would let the host wait until the GPU has counted its tokens.
        place_N = real_BT.flatten().nonzero_static(size=batch.num_labels)[:, 0]
        features_BTD = model.features(batch.source_BS, batch.decoder_input_BT)
        features_ND = features_BTD.flatten(0, 1).index_select(0, place_N)
    return features_ND.to(device.dtype), batch.labels_BT.flatten()[place_N]


class MovingAverage:
    """average <- decay average + (1 - decay) weights, after each update; with a decay of 0 there is none.

    At the beginning the decay is (1 + step) / (10 + step) if this is smaller, so that the random initial weights fade.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = dict(model.named_parameters()) if decay else {}
        self.averages = {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Include the weights after update `step`."""
        if self.averages:
            decay = min(self.decay, (1 + step) / (10 + step))
            blend = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            blend(list(self.averages.values()), list(self.weights.values()), step)

    @contextmanager
    def in_place_of_the_weights(self) -> Iterator[None]:
        """Inside this context the model has the averaged weights, if there is an average."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, average in self.averages.items():
            weight: Tensor = self.weights[name]
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)


@dataclass(frozen=True)
class Learner:
    """All that an update changes: the model inside its loss, optimizer, moving average, and sizes that did not fit; and
    how: the settings, and the ranks that share the work."""

    loss: BatchLoss
    optimizer: Optimizer
    average: MovingAverage
    settings: TrainingConfig
    ranks: Ranks = Ranks()  # noqa: RUF009  # frozen
    room: Room = field(default_factory=Room)
    graphs: Graphs | None = None
    """Updates of packed batches that a GPU replays; None if nothing is captured."""

    @property
    def model(self) -> Seq2Seq:
        return self.loss.model

    @property
    def device(self) -> Device:
        return self.loss.device
