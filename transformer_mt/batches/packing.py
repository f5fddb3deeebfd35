"""Makes packed batches: sentences end to end, without padding, and in the same shapes from batch to batch.

B sentences  N rows of one side: its tokens, then dummies, which fill the rest
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.base.errors import ConfigError
from transformer_mt.base.languages import BOS
from transformer_mt.batches.batching import Batch, BatchOrder, OfTensors, Pairs, epoch_pairs, epoch_random
from transformer_mt.batches.encoded import EncodedCorpus, EncodedText

_BATCHES_AT_A_TIME = 200  # the most batches cut at once, so that memory does not grow with the corpus


@dataclass(frozen=True)
class PackedShape:
    """The sizes that all batches of a run have. Source sentence i and target sentence i are a pair.

    Rows without a sentence belong to dummy sentences, the same number on both sides, each of at least one row:
    attention writes nothing in a row that belongs to no sentence, so that the row would hold random memory.
    """

    source_rows: int
    target_rows: int
    max_pairs: int
    max_length: int
    """The most tokens of a sentence or a dummy."""

    @property
    def num_dummies(self) -> int:
        """The most dummies on each side, which is their number if there is no sentence."""
        return self.dummies_beside(0, 0)

    def dummies_beside(self, num_source: int, num_target: int) -> int:
        """The number of dummies that each side needs to fill its rows after so many tokens."""
        return -(-max(self.source_rows - num_source, self.target_rows - num_target) // self.max_length)

    @property
    def rooms(self) -> tuple[int, int]:
        """The most tokens that all source sentences may have together, and all target sentences."""
        return self.source_rows - self.num_dummies, self.target_rows - self.num_dummies

    def for_part(self, corpus: EncodedCorpus, pairs: Pairs) -> "PackedShape":
        """Return the shape for a part of a batch, which has these pairs.

        It is about an eighth, a quarter or a half of this shape, so that there are few shapes. As parts differ in
        length, it is a sixteenth larger. If the part fits into none of them, it is this shape itself.
        """
        num_source, num_target = (int(side.lengths(pairs).sum()) for side in (corpus.source, corpus.target))
        for parts in (8, 4, 2):
            source_rows, target_rows = (
                _round_up(rows * 17 // (16 * parts) + self.max_length, 128)
                for rows in (self.source_rows, self.target_rows)
            )
            shape = PackedShape(source_rows, target_rows, -(-self.max_pairs // parts) + 16, self.max_length)
            source_room, target_room = shape.rooms
            has_room = num_source <= source_room and num_target <= target_room
            if has_room and len(pairs) <= shape.max_pairs and source_rows < self.source_rows:
                return shape
        return self


@dataclass(frozen=True)
class PackedBatch(OfTensors):
    """Some pairs of a corpus. Each sentence ends in EOS. All values of dummies are 0, which for ids is PAD."""

    source_N: Tensor
    """int64."""
    source_offsets: Tensor
    """int32 [max_pairs + num_dummies + 1]: sentence or dummy i has the rows from offsets[i] to offsets[i + 1]. After
    the dummies, the last offset is repeated."""
    source_positions_N: Tensor
    """int64: the position of each token in its sentence, from 0."""
    decoder_input_N: Tensor
    """int64: BOS, then the target without its EOS."""
    target_offsets: Tensor
    target_positions_N: Tensor
    labels_N: Tensor
    """int64: the target."""
    shape: PackedShape
    pairs_B: Tensor
    """int64: the numbers of the pairs in the corpus; always on the CPU."""
    num_labels: int
    """The number of target tokens, with EOS and without PAD."""

    @property
    def num_positions(self) -> int:
        """The number of target rows, dummies included."""
        return self.labels_N.numel()

    def halves(self) -> "tuple[PackedBatch, PackedBatch]":
        """Split the pairs into two batches of about half the rows: the even ones and the odd ones."""
        return self._every_other(0), self._every_other(1)

    def _every_other(self, first: int) -> "PackedBatch":
        source = EncodedText(self.source_N.numpy(), self.source_offsets.numpy())
        target = EncodedText(self.labels_N.numpy(), self.target_offsets.numpy())
        corpus, rows = EncodedCorpus(source, target), np.arange(first, len(self.pairs_B), 2)
        half = collate_packed(corpus, rows, self.shape.for_part(corpus, rows))
        return replace(half, pairs_B=self.pairs_B[first::2])


MicroBatch = Batch | PackedBatch


def packed_shape(corpus: EncodedCorpus, tokens_per_batch: int) -> PackedShape:
    """Choose the sizes of batches of this corpus.

    The side with more tokens in the corpus has `tokens_per_batch` rows, and the other side proportionally fewer. There
    is room for the expected number of pairs plus four standard deviations (if the standard deviation of lengths is at
    most their mean), so that very few batches reach this number before their rows are full.
    """
    num_source, num_target = corpus.source.num_tokens, corpus.target.num_tokens
    longest = max(corpus.source.longest, corpus.target.longest)
    max_length = _round_up(longest, 128)  # the tile size of attention kernels; a tighter bound gains nothing
    num_dummies = -(-tokens_per_batch // max_length)

    def rows(num_tokens: int) -> int:
        in_proportion = _round_up(-(-tokens_per_batch * num_tokens // max(num_source, num_target)), 128)
        return min(tokens_per_batch, max(in_proportion, longest + num_dummies))

    expected_pairs = tokens_per_batch * len(corpus) / max(num_source, num_target)
    max_pairs = math.ceil(expected_pairs + 4 * math.sqrt(expected_pairs))
    return PackedShape(rows(num_source), rows(num_target), max_pairs, max_length)


def packed_epoch_batches(
    corpus: EncodedCorpus, shape: PackedShape, seed: int, epoch: int, weights: Sequence[Fraction] = ()
) -> BatchOrder:
    """Return the pairs of each batch of an epoch, in order. Every pair occurs as often as `weights` say, or once.

    The result is a pure function of the arguments. Pairs are shuffled without regard to length, and a batch ends before
    the pair that does not fit. Raises ConfigError if a single pair does not fit into a batch.
    """
    shuffled = epoch_pairs(corpus.sizes, weights, seed, epoch, epoch_random(seed, epoch))
    all_ends = array("q", [0])
    while (start := all_ends[-1]) < len(shuffled):
        window = shuffled[start : start + _BATCHES_AT_A_TIME * shape.max_pairs].astype(np.int64)
        ends = _ends_of_batches(corpus, window, shape)
        if start + len(window) < len(shuffled):
            ends.pop()  # the last batch may have room for more pairs
        all_ends.extend(start + end for end in ends)
    return BatchOrder(shuffled, np.array(all_ends), np.arange(len(all_ends) - 1))


def collate_packed(corpus: EncodedCorpus, pairs: Pairs, shape: PackedShape) -> PackedBatch:
    """Make the packed batch of these pairs; there may be none. They must fit into the shape."""
    source, target = corpus.source.gather(pairs), corpus.target.gather(pairs)
    num_target = len(target[0])
    dummies = shape.dummies_beside(len(source[0]), num_target)
    of_source = _packed(*source, shape, shape.source_rows, dummies)
    labels_N, target_offsets, target_positions_N = _packed(*target, shape, shape.target_rows, dummies)
    decoder_input_N = np.zeros_like(labels_N)
    decoder_input_N[1:num_target] = labels_N[: max(0, num_target - 1)]
    decoder_input_N[target_offsets[: len(pairs)]] = BOS
    arrays = *of_source, decoder_input_N, target_offsets, target_positions_N, labels_N
    fields: Any = *map(torch.from_numpy, arrays), shape, torch.from_numpy(pairs), num_target
    return PackedBatch(*fields)


def _ends_of_batches(corpus: EncodedCorpus, pairs: Pairs, shape: PackedShape) -> list[int]:
    """Return where to cut these pairs into batches, each with as many pairs as fit."""
    source_ends = corpus.source.lengths(pairs).cumsum()
    target_ends = corpus.target.lengths(pairs).cumsum()
    source_room, target_room = shape.rooms
    ends = [0]
    source_taken = target_taken = 0
    while (start := ends[-1]) < len(pairs):
        source_fits = int(np.searchsorted(source_ends, source_taken + source_room, side="right"))
        target_fits = int(np.searchsorted(target_ends, target_taken + target_room, side="right"))
        end = min(source_fits, target_fits, start + shape.max_pairs)
        if end == start:
            raise ConfigError(
                f"training.tokens_per_batch={max(shape.source_rows, shape.target_rows)} leaves room for a pair of "
                f"{source_room} and {target_room} pieces, but not for the "
                f"{source_ends[start] - source_taken} and {target_ends[start] - target_taken} of pair "
                f"{pairs[start]:,}; raise it, or lower corpus.max_length and prepare again"
            )
        source_taken, target_taken = source_ends[end - 1], target_ends[end - 1]
        ends.append(end)
    return ends[1:]


def _packed(
    ids: NDArray[Any], lengths_B: NDArray[np.int64], shape: PackedShape, num_rows: int, num_dummies: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Return the ids N of sentences end to end, the offsets of sentences and dummies, and the positions N."""
    num_sentences, num_tokens, room = len(lengths_B), len(ids), num_rows - shape.num_dummies
    assert num_sentences <= shape.max_pairs and num_tokens <= room, "these pairs do not fit into one batch"
    assert lengths_B.max(initial=0) <= shape.max_length, "longer than the shape allows"
    offsets = np.full(shape.max_pairs + shape.num_dummies + 1, num_rows, np.int32)
    offsets[0] = 0
    offsets[1 : num_sentences + 1] = lengths_B.cumsum()
    # The dummies share the remaining rows as evenly as possible; the last one ends at the last row.
    dummies = np.arange(1, num_dummies + 1)
    offsets[num_sentences + 1 :][:num_dummies] = num_tokens + (num_rows - num_tokens) * dummies // num_dummies

    positions_N, ids_N = np.zeros(num_rows, np.int64), np.zeros(num_rows, np.int64)
    positions_N[:num_tokens] = np.arange(num_tokens) - np.repeat(offsets[:num_sentences], lengths_B)
    ids_N[:num_tokens] = ids
    return ids_N, offsets, positions_N


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
