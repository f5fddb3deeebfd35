"""The interface of engines, which run models: ids in, hypotheses out. Imports no PyTorch.

S source positions  T target positions
"""

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from transformer_mt.base.errors import TranslationError
from transformer_mt.decoding.hypothesis import Hypothesis, LengthPenaltyForm, length_penalty
from transformer_mt.settings.search_settings import DecodingConfig

if TYPE_CHECKING:  # since it imports NumPy and PyTorch
    from transformer_mt.models.attention_weights import FloatArray

T = TypeVar("T")

AUTO_ON_CPU = 4096  # the value of decoding.tokens_per_batch=auto
# A GPU needs a thousand rows or more to be busy: these are 327 sentences of 25 pieces at beam 4, so 1,308 rows. Rounded
# up to 512 sentences of 256 slots, their keys and values take 3.2 GB in fp32 with 6 layers of width 512, and 1.6 GB in
# bf16; those of the source take a quarter of that. Not measured on a GPU.
AUTO_ON_GPU = 32_768

SCORED_TOGETHER = 4096  # positions in a batch of pairs, with padding; of the targets for CTranslate2
LEAST_COVERAGE = 1e-12  # for a source position that got no attention, so that the logarithm is finite
TYPICAL_LENGTH = 25  # pieces of a translation


@dataclass(frozen=True)
class Sentence:
    """A sentence to translate."""

    source: list[int]
    """The ids of its pieces, ending in EOS."""
    prefix: list[int] = field(default_factory=list)
    """The ids that the translation must begin with, without EOS."""
    number: int = 0
    """A different number for each sentence, which seeds its random numbers."""
    once: Sequence[int] = ()
    """Ids that stand for protected texts: the translation has each exactly once, and no others of their kind."""
    terms: Sequence[Sequence[Sequence[int]]] = ()
    """Phrases that the translation must have, for each the ids of its alternatives, of which one suffices."""

    def max_length(self, max_extra_length: int, max_positions: int) -> int:
        """The most pieces of its translation, EOS included: `max_extra_length` more than the sentence or its prefix."""
        return min(max(len(self.source), len(self.prefix) + 1) + max_extra_length, max_positions)


@dataclass(frozen=True)
class Wanted:
    """What the caller of an engine wants in addition to translations."""

    alignment: bool = False
    scores: bool = True
    """Without them, scores may be NaN, which can be faster."""
    progress: Callable[[int], None] | None = field(default=None, compare=False)
    """Called with the number of further sentences that are done."""


WITH_SCORES = Wanted()


class Engine(ABC):
    """Runs a model, or an ensemble, on a device."""

    max_positions: int
    """The most pieces of a source and of a translation, EOS included."""
    hardware = "CPU"
    """What the model runs on: the name of the GPU, or CPU."""
    finds_terms = False
    """Whether its beam search regards the terms of a sentence."""
    samples_by_number = True
    """Whether the samples of a sentence depend only on its number, not on the sentences beside it."""

    def __init__(self) -> None:
        self._lock, self._process_id, self._is_closed = threading.RLock(), os.getpid(), False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one thread at a time use the engine while the others wait.

        Raises TranslationError if the engine is closed, and in a forked process, which does not have its threads.
        """
        self.check_process()
        with self._lock:
            if self._is_closed:
                raise TranslationError("this Translator or Scorer is closed: load the model again to use it")
            yield

    def check_process(self) -> None:
        """Raises TranslationError in a forked process, in which a lock may be held by a thread that it lacks."""
        if os.getpid() != self._process_id:
            raise TranslationError(
                "the model was loaded in the process from which this one was forked: load the model in each process, "
                "after the fork"
            )

    def close(self) -> None:
        """Wait until no other thread uses the engine, then end its processes and threads (not in a fork)."""
        if os.getpid() == self._process_id:
            with self._lock:
                self._is_closed = True
                self._end()

    def _end(self) -> None:  # noqa: B027  some engines have nothing to end
        """End the processes and threads of the engine."""

    @abstractmethod
    def translate_unordered(
        self, sentences: Sequence[Sentence], decoding: DecodingConfig, wanted: Wanted = WITH_SCORES
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """Translate; yields (numbers of some sentences, the hypotheses of each) as they are found, each sentence once.

        Hypotheses come best first, at least one and at most n_best; none if the model's numbers are not finite.
        """

    def translate(
        self, sentences: Sequence[Sentence], decoding: DecodingConfig, wanted: Wanted = WITH_SCORES
    ) -> list[list[Hypothesis]]:
        """The hypotheses that `translate_unordered` yields, in the order of the sentences."""
        return in_order(self.translate_unordered(sentences, decoding, wanted))

    @abstractmethod
    def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """The log-probability of each target token in forced decoding, in nats. Sources and targets end in EOS.

        They may include numbers that are not finite.
        """

    def attention(self, source: list[int], target: list[int]) -> "tuple[FloatArray, FloatArray, FloatArray]":
        """The attention weights of forced decoding: LHSS in the encoder, LHTT in the decoder, LHTS between them.

        Source and target end in EOS. Raises TranslationError if this engine or the model has none.
        """
        raise TranslationError(
            "this engine does not give attention weights: load the model directory that `average` wrote with the "
            "engine torch"
        )


def in_order(batches: Iterable[tuple[Sequence[int], Sequence[T]]]) -> list[T]:
    """The results of all sentences, in their order; each batch has the numbers of some sentences, and their results."""
    found = {number: result for batch in batches for number, result in zip(*batch, strict=True)}
    return [found[number] for number in range(len(found))]


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Batch sentences of similar length, longest first, up to `budget` positions with padding; yields their numbers."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number], reverse=True):
        longest = lengths[batch[0]] if batch else 0
        if batch and (len(batch) + 1) * longest > budget:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def positions_per_batch(decoding: DecodingConfig, width: int, *, on_gpu: bool) -> int:
    """The most source positions of a batch, padding included, if each sentence has `width` hypotheses."""
    tokens = decoding.tokens_per_batch
    if tokens == "auto":
        tokens = AUTO_ON_GPU if on_gpu else AUTO_ON_CPU
    return tokens // width


def coverage_penalty(received_S: Iterable[float], beta: float) -> float:
    """A number to add to a translation's score: 0, or less for each source position that got little attention.

    beta times the sum over source positions of log(min(attention received, 1)) (Wu et al. 2016, eq. 14). Each number is
    the attention that one position received from all target pieces.
    """
    return beta * sum(math.log(min(max(received, LEAST_COVERAGE), 1.0)) for received in received_S)


def power_of_length(alpha: float, form: LengthPenaltyForm, length: int = TYPICAL_LENGTH) -> float:
    """The p for which length ** p grows as fast as the length penalty does, at translations of `length` pieces.

    It is for programs that have no other length penalty than a power of the length.
    """
    growth = length_penalty(length + 1, alpha, form) / length_penalty(length, alpha, form)
    return math.log(growth) / math.log((length + 1) / length)
