"""All that an update changes: the model inside its loss, which has faster forms, the optimizer, a moving average.

B sentences  T target positions  N real target tokens  D model width
"""

from collections import Counter
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
from transformer_mt.training.distributed import is_sharded
from transformer_mt.training.loss import LossSums, label_smoothed, real_features
from transformer_mt.training.out_of_memory import Room

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
        self.scaler = GradScaler(device.torch_device.type, enabled=device.dtype == torch.float16)
        self.compiled: Features | None = None
        if compiled:
            quick = torch.compile(model.features, dynamic=False)
            self.compiled = CommonShapes(model.features, quick, patience_on(device))

    def forward(self, batch: MicroBatch) -> LossSums:
        batch = batch.to(self.device.torch_device)
        features = self.compiled or self.model.features
        # A GPU rounds all weights together. With FSDP, this rank does not have those of other ranks here.
        is_half = self.device.torch_device.type == "cuda" and self.device.dtype != torch.float32
        with rounded_weights(self.model, self.device.dtype) if is_half and not is_sharded(self) else nullcontext():
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
    """All that an update changes: the model inside its loss, optimizer, moving average, and sizes that did not fit."""

    loss: BatchLoss
    optimizer: Optimizer
    average: MovingAverage
    room: Room = field(default_factory=Room)

    @property
    def model(self) -> Seq2Seq:
        return self.loss.model

    @property
    def device(self) -> Device:
        return self.loss.device
