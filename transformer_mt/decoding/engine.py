"""What a translator asks of that which computes: ids in, hypotheses out. Imports no PyTorch."""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from transformer_mt.errors import TranslationError
from transformer_mt.settings.decoding import DecodingConfig


@dataclass(frozen=True)
class Sentence:
    """What is to be translated."""

    source: list[int]
    """Its pieces, EOS the last."""
    prefix: list[int] = field(default_factory=list)
    """Pieces that the translation has to begin with; no EOS."""
    number: int = 0
    """Tells it from others: seeds what is drawn for it."""

    def max_length(self, max_extra_length: int, max_positions: int) -> int:
        """How many pieces its translation has at most, EOS included: so many more than itself, or than its prefix."""
        return min(max(len(self.source), len(self.prefix)) + max_extra_length, max_positions)


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
    """The source position that each token but EOS looked at most, EOS of the source left out.

    If asked for, and if the source is more than EOS.
    """


class Engine(ABC):
    """A model, or several, on a device."""

    max_positions: int
    """No source may have more pieces, EOS included, and no translation will."""
    keeps_all_pasts = False
    """Whether a search keeps the pasts of all hypotheses of a sentence together, and none of them ever moves."""

    def __init__(self) -> None:
        self._lock, self._process_id, self._is_closed = threading.RLock(), os.getpid(), False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one thread at a time use the engine; the others wait.

        Raises TranslationError if the engine is closed, or cannot be used in a process that was forked.
        """
        if os.getpid() != self._process_id:
            self._begin_after_fork()
            # A thread that held the old lock when the process was forked is not in this process to release it.
            self._lock, self._process_id = threading.RLock(), os.getpid()
        with self._lock:
            if self._is_closed:
                raise TranslationError("this Translator or Scorer is closed: load the model again to use it")
            yield

    def close(self) -> None:
        """Wait until no other thread uses the engine, then end its processes and threads; closing twice is allowed."""
        with self._lock:
            self._is_closed = True

    def _begin_after_fork(self) -> None:  # noqa: B027  most have nothing to do
        """Called once in a process that was forked from the one that loaded the engine."""

    @abstractmethod
    def translate_unordered(
        self,
        sentences: Sequence[Sentence],
        decoding: DecodingConfig,
        *,
        alignment: bool = False,
        scores: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """(Numbers of sentences, the hypotheses of each), as they are found; each sentence once.

        Hypotheses are best first, at least one, at most n-best; but there are none of a sentence for which the model
        computes numbers that are not finite. Without `scores` these may be not a number, where that is quicker.
        `progress` is told how many more sentences are done.
        """

    def translate(
        self,
        sentences: Sequence[Sentence],
        decoding: DecodingConfig,
        *,
        alignment: bool = False,
        scores: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The same, in the order of the sentences."""
        found: list[list[Hypothesis]] = [[] for _ in sentences]
        for numbers, hypotheses_of in self.translate_unordered(
            sentences, decoding, alignment=alignment, scores=scores, progress=progress
        ):
            for number, hypotheses in zip(numbers, hypotheses_of, strict=True):
                found[number] = hypotheses
        return found

    @abstractmethod
    def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Forced decoding: the log-probability of each target token, in nats. Sources and targets end in EOS.

        One that is not finite is given as it is.
        """


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Numbers of sentences of like length, longest first, as many together as the budget of positions allows."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number], reverse=True):
        longest = lengths[batch[0]] if batch else 0
        if batch and (len(batch) + 1) * longest > budget:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def num_cores() -> int:
    """That are for us: a scheduler, or a container, may give fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
