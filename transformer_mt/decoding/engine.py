"""What a translator asks of that which computes: ids in, hypotheses out. Imports no PyTorch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from transformer_mt.config import DecodingConfig


@dataclass(frozen=True)
class Sentence:
    """What is to be translated."""

    source: list[int]
    """Its pieces, EOS the last."""
    prefix: list[int] = field(default_factory=list)
    """Pieces that the translation has to begin with; no EOS."""
    number: int = 0
    """Tells it from others: seeds what is drawn for it."""


@dataclass(frozen=True)
class Hypothesis:
    """A translation that the search found."""

    tokens: list[int]
    """Without BOS, with its EOS."""
    log_prob: float
    """Sum over all its tokens, EOS included, in nats."""
    score: float
    """What hypotheses are ranked by: log_prob divided by the length penalty."""
    alignment: list[int] | None = None
    """The source position that each token but EOS looked at most, EOS of the source left out; if asked for."""


class Engine(ABC):
    """A model, or several, on a device."""

    max_positions: int
    """No source may have more pieces, EOS included, and no translation will."""

    @abstractmethod
    def translate(
        self,
        sentences: Sequence[Sentence],
        decoding: DecodingConfig,
        *,
        alignment: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence, in order: best first, at least one, at most n-best.

        `progress` is told how many more sentences are done.
        """

    @abstractmethod
    def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Forced decoding: the log-probability of each target token, in nats. Sources and targets end in EOS."""
