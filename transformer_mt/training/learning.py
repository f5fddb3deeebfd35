"""What an update changes, and what is known of one that was made."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor
from torch.optim import Optimizer

from transformer_mt.device import Device
from transformer_mt.training.averaging import MovingAverage
from transformer_mt.training.out_of_memory import Room
from transformer_mt.training.update import Numbers

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


@dataclass(frozen=True)
class Update:
    """An update that was made, and what the host knows of it at once; all over all ranks, but for the pairs."""

    numbers: Numbers
    step: int
    """From 1."""
    learning_rate: float
    num_labels: int
    """Real target tokens."""
    num_positions: int
    """Target positions, padding included."""
    num_batches: int
    """Micro-batches, before any was split."""
    pairs: Tensor
    """int64, on the CPU: the numbers of the corpus's pairs that this rank saw."""

    @property
    def splits(self) -> int:
        """How often a micro-batch was split in two because it, or one as large, did not fit into memory."""
        return int(self.numbers.num_batches) - self.num_batches
