"""How far a run has come."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from transformer_mt.data.loader import Layout, Position


@dataclass(frozen=True)
class Progress:
    """What changes in a run besides tensors, saved whole."""

    step: int = 0
    position: Position = field(default_factory=Position)
    tokens_per_batch: int = 0
    """Of a micro-batch: the configuration's, or what was found to fit when the run began."""
    layout: Layout = "padded"
    """Of sentences in a micro-batch, chosen when the run began."""
    tokens: int = 0
    """Real target tokens trained on."""
    seconds: float = 0.0
    """Spent in updates."""
    skipped: int = 0
    """Updates that moved nothing, for their loss or gradient was not finite."""
    skipped_in_a_row: int = 0
    split: int = 0
    """Micro-batches that did not fit into memory and were made in two parts."""
    best: tuple[tuple[float, int], ...] = ()
    """Metric and step of the best validations, the best first."""
    validations_since_best: int = 0
    data: Mapping[str, str] = field(default_factory=dict)
    """Digests of the training and the validation data (data.prepared.data_digests); empty in older checkpoints."""

    @property
    def best_steps(self) -> list[int]:
        return [step for _, step in self.best]
