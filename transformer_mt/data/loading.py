"""What training reads: the micro-batches of each update, in an order that does not depend on who makes them.

B sentences
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from transformer_mt.data.batching import Batch, Pairs, collate, epoch_batches
from transformer_mt.data.encoded import EncodedCorpus


@dataclass(frozen=True)
class Position:
    """Where a run is in the data."""

    epoch: int = 0
    """From 0."""
    batch: int = 0
    """Micro-batches of this epoch that are already taken."""


@dataclass(frozen=True)
class Loader:
    """The training pairs, shuffled and cut into micro-batches."""

    corpus: EncodedCorpus
    tokens_per_batch: int
    tokens_per_update: int
    seed: int

    def updates(self, position: Position) -> Iterator[tuple[list[Pairs], Position]]:
        """The micro-batches of each update from `position` on, without end, and the position after them.

        As many as have `tokens_per_update` target tokens, and at least one.
        """
        update: list[Pairs] = []
        num_tokens, reached = 0, position
        for pairs, after in self._micro_batches(position):
            more = int((self.corpus.target.offsets[pairs + 1] - self.corpus.target.offsets[pairs]).sum())
            if update and num_tokens + more > self.tokens_per_update:
                yield update, reached
                update, num_tokens = [], 0
            update.append(pairs)
            num_tokens, reached = num_tokens + more, after

    def order(self, epoch: int) -> list[Pairs]:
        """The micro-batches of an epoch: every pair once."""
        return epoch_batches(self.corpus, self.tokens_per_batch, self.seed, epoch)

    @property
    def longest(self) -> int:
        """Pieces of the longest sentence of either side."""
        return max(int(np.diff(side.offsets).max()) for side in (self.corpus.source, self.corpus.target))

    def batch(self, pairs: Pairs) -> Batch:
        """Their ids."""
        return collate(self.corpus, pairs)

    def _micro_batches(self, position: Position) -> Iterator[tuple[Pairs, Position]]:
        first = position.batch
        for epoch in count(position.epoch):
            batches = self.order(epoch)
            for index in range(first, len(batches)):
                last = index + 1 == len(batches)
                yield batches[index], Position(epoch + 1) if last else Position(epoch, index + 1)
            first = 0


def split_evenly(batches: Sequence[Pairs], num_ranks: int) -> list[Pairs]:
    """The same pairs in a multiple of `num_ranks` micro-batches, so that every rank has as many.

    The largest is halved as long as that is needed; where only single pairs are left, empty ones are added.
    """
    parts = list(batches)
    while len(parts) % num_ranks:
        largest = max(range(len(parts)), key=lambda index: len(parts[index]))
        if len(parts[largest]) < 2:
            parts.append(np.empty(0, np.int64))
            continue
        pairs = parts[largest]
        parts[largest : largest + 1] = [pairs[0::2], pairs[1::2]]
    return parts
