"""Cuts the training pairs into the micro-batches of each update, in an order that only the seed decides."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from transformer_mt.batches.batching import BatchOrder, Pairs, Stage, collate, epoch_batches
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.packing import MicroBatch, PackedShape, collate_packed, packed_epoch_batches, packed_shape

if TYPE_CHECKING:
    from transformer_mt.batches.modifier_sampling import ModifierSampler

_STRETCH = 1.25  # changes may give a padded batch this many times its positions, so that most of them have room

BatchLayout = Literal["padded", "packed"]
"""The layout of the sentences of a micro-batch: one in each row, padded; or end to end, without padding."""


@dataclass(frozen=True)
class Position:
    """The position of a run in the data."""

    epoch: int = 0
    """The number of the epoch, from 0."""
    batch: int = 0
    """The number of micro-batches of this epoch that the run has already used."""
    stage: int = 0
    """The number of the stage, from 0."""
    done: int = 0
    """How many epochs or updates of this stage, whichever it counts, are complete."""


@dataclass(frozen=True)
class Loader:
    """The training pairs, shuffled and cut into micro-batches."""

    corpus: EncodedCorpus
    tokens_per_batch: int
    """The most positions of a micro-batch on its longer side."""
    tokens_per_update: int
    seed: int
    layout: BatchLayout = "padded"
    sampler: "ModifierSampler | None" = None
    """Changes the text of some pairs."""
    max_positions: int = 2**31
    """The greatest length of a sentence that the sampler has changed."""
    stages: tuple[Stage, ...] = (Stage(),)

    def order(self, epoch: int, stage: int = 0) -> BatchOrder:
        """The micro-batches of an epoch; for a hundred million pairs this takes a minute or so. Raises ConfigError."""
        weights = self.stages[stage].weights
        if self.layout == "packed":
            return packed_epoch_batches(self.corpus, self._shape_to_fill, self.seed, epoch, weights)
        return epoch_batches(self.corpus, self.tokens_per_batch, self.seed, epoch, weights)

    def updates(
        self, position: Position, make: Callable[[Callable[[], BatchOrder]], BatchOrder | None] = lambda order: order()
    ) -> Iterator[tuple[list[Pairs], Position]]:
        """The micro-batches of each update, starting at `position`, and the position after them.

        An update takes as many as `tokens_per_update` target tokens allow, and at least one. `make` is called for the
        order of each epoch. The updates end only if it returns None.
        """
        update, num_tokens = list[Pairs](), 0
        stage, done = position.stage, position.done
        for epoch in count(position.epoch):
            batches = make(partial(self.order, epoch, stage))
            if batches is None:
                return
            of_stage = self.stages[stage]
            for index in range(position.batch if epoch == position.epoch else 0, len(batches)):
                more = int(self.corpus.target.lengths(batches[index]).sum())
                if update and num_tokens + more > self.tokens_per_update:
                    done += of_stage.updates is not None
                    if done == of_stage.updates:
                        break
                    yield update, Position(epoch, index, stage, done)
                    update, num_tokens = [], 0
                update.append(batches[index])
                num_tokens += more
            else:
                done += of_stage.epochs is not None
            if done in (of_stage.updates, of_stage.epochs):
                stage, done = stage + 1, 0
                if update:
                    yield update, Position(epoch + 1, 0, stage)
                update, num_tokens = [], 0
            del batches  # before the next order is made

    def batch(self, pairs: Pairs, step: int, number: int) -> MicroBatch:
        """The batch of these pairs. What the sampler changes depends on the seed, the update and the batch's number."""
        corpus, rows = self.corpus, pairs
        if self.sampler is not None and len(pairs):
            if self.layout == "padded":
                room = int(self.tokens_per_batch * _STRETCH)
                longest, total = room // len(pairs), (room, room)
            else:
                longest, total = self._shape.max_length, self._shape.rooms
            seed, longest = f"{self.seed} {step} {number}", min(longest, self.max_positions)
            corpus = self.sampler.sampled(corpus, pairs, seed, longest, total)
            rows = np.arange(len(pairs))
        batch: MicroBatch
        if self.layout == "padded":
            batch = collate(corpus, rows)
        else:
            batch = collate_packed(corpus, rows, self._shape.for_part(corpus, rows))
        return replace(batch, pairs_B=torch.from_numpy(pairs))

    @cached_property
    def _shape(self) -> PackedShape:
        return packed_shape(self.corpus, self.tokens_per_batch)

    @cached_property
    def _shape_to_fill(self) -> PackedShape:
        """The shape to fill with pairs: smaller than that of the batch if changes may make more pieces of them."""
        shape, longest = self._shape, max(self.corpus.source.longest, self.corpus.target.longest)
        if self.sampler is None:
            return shape
        budget = self.sampler.budget(self.corpus, self.tokens_per_batch)
        source_rows, target_rows = (
            max(size * budget // self.tokens_per_batch, min(size, longest + shape.num_dummies))
            for size in (shape.source_rows, shape.target_rows)
        )
        return replace(shape, source_rows=source_rows, target_rows=target_rows)


def split_evenly(batches: Sequence[Pairs], num_ranks: int) -> list[Pairs]:
    """The pairs in a multiple of `num_ranks` batches, made by splitting the largest or, at last, by empty ones."""
    parts = list(batches)
    while len(parts) % num_ranks:
        largest = max(range(len(parts)), key=lambda index: len(parts[index]))
        if len(parts[largest]) < 2:
            parts.append(np.empty(0, np.int64))
            continue
        pairs = parts[largest]
        parts[largest : largest + 1] = [pairs[0::2], pairs[1::2]]
    return parts
