"""What an update changes."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch.optim import Optimizer

from transformer_mt.device import Device
from transformer_mt.training.averaging import MovingAverage
from transformer_mt.training.out_of_memory import Room

if TYPE_CHECKING:
    from transformer_mt.models.interface import Seq2Seq
    from transformer_mt.training.batch_loss import BatchLoss


@dataclass(frozen=True)
class Learner:
    """All that an update changes: the model inside its loss, the optimizer, the moving average, what did not fit."""

    loss: "BatchLoss"
    optimizer: Optimizer
    average: MovingAverage
    room: Room = field(default_factory=Room)

    @property
    def model(self) -> "Seq2Seq":
        return self.loss.model

    @property
    def device(self) -> Device:
        return self.loss.device
