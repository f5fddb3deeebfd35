"""What is asked of the measurements on a GPU."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from benchmarks.shapes import SHAPES
from transformer_mt.settings.model_settings import TransformerConfig

Figures = dict[str, Any]
"""What a measurement found: the content of a JSON object."""

NOT_IN_REPORTS = {"out", "work", "minutes"}


class Settings(BaseModel):
    """The options of the command, as every process of it gets them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: Path
    """Where the JSON goes."""
    work: Path
    """Where corpora, models and jobs are written."""
    device: Literal["cpu", "cuda"]
    precision: Literal["auto", "fp32", "bf16", "fp16"]
    shape: str
    """A name in SHAPES; empty: as each part chooses."""
    text: tuple[Path, ...]
    """A source and a target file; empty: random words, or the demo corpus where something is to be learnt."""
    model: Path | None
    """A trained model for the part decode; None: it trains one."""
    rounds: int
    threads: int
    minutes: float

    @property
    def in_report(self) -> Figures:
        """What has to be the same when an unfinished part is gone on with."""
        return self.model_dump(mode="json", exclude=NOT_IN_REPORTS)

    @property
    def is_trial(self) -> bool:
        """Whether the numbers mean nothing: everything is as small as it can be."""
        return self.shape == "tiny"

    def shape_or(self, name: str) -> tuple[TransformerConfig, int]:
        """The model that was asked for, or the one of that name; and the size of its vocabulary."""
        return SHAPES[self.shape or name]

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def training_precision(self) -> str:
        return ("bf16" if self.on_gpu else "fp32") if self.precision == "auto" else self.precision

    @property
    def decoding_precision(self) -> str:
        return ("fp16" if self.on_gpu else "fp32") if self.precision == "auto" else self.precision

    @property
    def tokens_per_batch(self) -> int:
        """Positions of a micro-batch in training, on its longer side."""
        return 1024 if self.is_trial else 25_000 if self.on_gpu else 4096
