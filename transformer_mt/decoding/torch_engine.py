"""Search and forced decoding by PyTorch.

B sentences  S source positions  T target positions  V vocabulary
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from transformer_mt.config import DecodingConfig
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.engine import Engine, Hypothesis, Sentence
from transformer_mt.decoding.lengths import coverage_penalty
from transformer_mt.decoding.sampling import sample
from transformer_mt.decoding.search import beam_search, greedy, max_lengths
from transformer_mt.decoding.workers import Workers
from transformer_mt.device import Device
from transformer_mt.models.frozen import frozen
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.products import Products, Quantization
from transformer_mt.vocabulary import BOS, EOS, PAD

SCORED_TOGETHER = 4096  # positions of a batch of pairs, padding included


class TorchEngine(Engine):
    """A model of ours on a device; on a CPU in several processes of one thread each, which share its memory."""

    def __init__(
        self,
        model: Seq2Seq,
        max_positions: int,
        device: Device,
        quantization: Quantization = "none",
        workers: int = 1,
    ) -> None:
        """`workers` are processes on a CPU; 0 are as many as there are cores."""
        self.model = model.to(device.torch_device).eval()
        self.max_positions, self.device, self.quantization = max_positions, device, quantization
        self.workers = Workers(workers or len(os.sched_getaffinity(0)) if device.torch_device.type == "cpu" else 1)

    def translate(
        self,
        sentences: Sequence[Sentence],
        decoding: DecodingConfig,
        *,
        alignment: bool = False,
        scores: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in sentences]
        lengths = [len(sentence.source) for sentence in sentences]
        width = decoding.n_best if decoding.sampling else decoding.beam_size
        budget = min(decoding.tokens_per_batch // width, -(-sum(lengths) // self.workers.number))
        together = list(batches(lengths, budget))

        def translated(numbers: list[int]) -> list[list[Hypothesis]]:
            with one_thread(self.device):
                return self._translate_batch([sentences[number] for number in numbers], decoding, alignment, scores)

        self.searcher  # noqa: B018  made before there are workers, so that all share it
        for at, batch in self.workers.map(translated, together):
            for number, hypotheses in zip(together[at], batch, strict=True):
                found[number] = hypotheses
            if progress is not None:
                progress(len(batch))
        return found
