"""Makes padded batches of token ids of limited size, in a shuffled order that a resumed run can repeat.

B sentences, S source positions, T target positions.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.base.errors import ConfigError
from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.base.system import free_memory
from transformer_mt.batches.encoded import EncodedCorpus, Text, narrow

if TYPE_CHECKING:
    from transformer_mt.settings.corpus_settings import CorpusConfig

PairNumbers = NDArray[Any]  # int32 as long as all numbers fit into it, otherwise int64

_DIGITS = 6  # after the point, of weights from a temperature: then they are the same on machines with another pow()


@dataclass(frozen=True)
class Stage:
    """A stage of training. It ends after a number of epochs or updates; without both, training ends it."""

    weights: tuple[Fraction, ...] = ()
    """How many times an epoch has each pair of each corpus; without weights, once."""
    epochs: int | None = None
    updates: int | None = None


def stages_of(corpus: "CorpusConfig", sizes: Sequence[int]) -> tuple[Stage, ...]:
    """Return the stages of training: one, unless `corpus.stages` has several.

    `sizes` are the corpora's numbers of pairs.
    With a temperature T, a corpus of n pairs has a share in proportion to n^(1/T), and the largest has weight 1. Raises
    ConfigError if an epoch would have no pair, or too many.
    """
    # From its decimal digits: 0.1 becomes exactly one tenth, so ten epochs have every pair once.
    stages = [Stage(tuple(Fraction(str(text.weight or 1)) for text in corpus.training_corpora))]
    if corpus.stages is not None:
        names = [str(text.name) for text in corpus.training_corpora]
        weights = [tuple(Fraction(str(each.weights.get(name, 0))) for name in names) for each in corpus.stages]
        stages = [Stage(of, each.epochs, each.updates) for of, each in zip(weights, corpus.stages, strict=True)]
    elif corpus.temperature is not None:
        power, largest = 1 - 1 / corpus.temperature, max(sizes)
        stages = [Stage(tuple(Fraction(round((largest / max(size, 1)) ** power, _DIGITS)) for size in sizes))]
    most = free_memory() // (2 * np.dtype(_dtype_of(sizes)).itemsize)  # the order, and the parts of which it is made
    for stage in stages:
        num_pairs = sum(size * weight for size, weight in zip(sizes, stage.weights, strict=True))
        if not 1 <= num_pairs <= most:
            raise ConfigError(
                "with these weights of corpus.train (or corpus.temperature, or corpus.stages), an epoch has "
                f"{float(num_pairs):,.3g} pairs; it must have 1 to {most:,}, so that their order fits into the free "
                f"memory of this machine: {'raise' if num_pairs < 1 else 'lower'} the weights"
            )
    return tuple(stages)


def epoch_pairs(
    sizes: Sequence[int], weights: Sequence[Fraction], seed: int, epoch: int, random: np.random.Generator
) -> PairNumbers:
    """Return the numbers of the pairs of an epoch, shuffled by `random`; without weights, every pair once.

    Pairs are numbered through all corpora; `sizes` are the corpora's numbers of pairs. An epoch has a pair of weight
    2.25 twice or three times. The pairs for the third time are the next part of a shuffle that depends only on the
    seed, so four epochs have each pair exactly 9 times.
    """
    dtype = _dtype_of(sizes)
    parts, first = [np.empty(0, dtype)], 0
    for number, (size, weight) in enumerate(zip(sizes, weights or [Fraction(1)] * len(sizes), strict=True)):
        copies, start, more = share(size, weight, epoch)
        if copies:
            parts += [np.arange(first, first + size, dtype=dtype)] * copies
        if more:
            shuffled = np.arange(first, first + size, dtype=dtype)  # epochs, one after another, take their parts of it
            np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, number, 1]))).shuffle(shuffled)
            parts += [shuffled[start : start + more], shuffled[: max(0, start + more - size)]]
        first += size
    order = np.concatenate(parts)
    random.shuffle(order)
    return order


def _dtype_of(sizes: Sequence[int]) -> type[np.signedinteger[Any]]:
    return np.int32 if sum(sizes) < 2**31 else np.int64


def share(size: int, weight: Fraction, epoch: int) -> tuple[int, int, int]:
    """Return what an epoch has of a corpus: the number of complete copies, then the start and number of extra pairs.

    The extra pairs are consecutive in a shuffle of the corpus, which is a ring: after its last pair comes its first.
    """
    copies, fraction = divmod(weight, 1)
    begins, ends = (int(fraction * size * number) for number in (epoch, epoch + 1))
    return int(copies), begins % size if size else 0, ends - begins


Pairs = NDArray[np.int64]  # indices of sentence pairs in a corpus

_BATCHES_PER_POOL = 100  # this many batches are sorted together: more means less padding, but less randomness


@dataclass(frozen=True)
class OfTensors:
    """A batch, of which some fields are tensors."""

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that a model reads, by their names: all except pairs_B."""
        return {name: ids for name, ids in vars(self).items() if isinstance(ids, Tensor) and name != "pairs_B"}

    def to(self, device: torch.device) -> Self:
        """Copy the tensors, except pairs_B, to a device. CUDA copies while it computes."""
        tensors = self.tensors()
        if device.type != "cuda" or any(ids.is_cuda for ids in tensors.values()):
            return replace(self, **{name: ids.to(device) for name, ids in tensors.items()})
        # A copy from memory that is not pinned would wait for the work queued on the device.
        return replace(self, **{name: ids.pin_memory().to(device, non_blocking=True) for name, ids in tensors.items()})


@dataclass(frozen=True)
class Batch(OfTensors):
    """Some pairs of a corpus, padded on the right. Each sentence ends in EOS."""

    source_BS: Tensor
    """int64."""
    decoder_input_BT: Tensor
    """int64: BOS, then the target without its EOS."""
    labels_BT: Tensor
    """int64: the target."""
    pairs_B: Tensor
    """int64: the numbers of the pairs in the corpus; always on the CPU."""
    num_labels: int
    """The number of target tokens, with EOS and without PAD."""

    @property
    def num_positions(self) -> int:
        """The number of target positions, padding included."""
        return self.labels_BT.numel()

    def halves(self) -> "tuple[Batch, Batch]":
        """Split the pairs into two batches: the even ones and the odd ones."""
        return self._rows(slice(0, None, 2)), self._rows(slice(1, None, 2))

    def _rows(self, rows: slice) -> "Batch":
        labels_BT = self.labels_BT[rows]
        num_labels = int((labels_BT != PAD).sum())
        return Batch(self.source_BS[rows], self.decoder_input_BT[rows], labels_BT, self.pairs_B[rows], num_labels)


def ordered_batches(corpus: EncodedCorpus, tokens_per_batch: int) -> Iterator[Batch]:
    """Yield every pair once, shortest first, for validation. Raises ConfigError as `epoch_batches` does."""
    for pairs in _sorted_batches(corpus, np.arange(len(corpus)), tokens_per_batch):
        yield collate(corpus, pairs)


@dataclass(frozen=True)
class BatchOrder:
    """The pairs of each batch of an epoch, in order. It saves memory: one array has all pairs, end to end."""

    pairs: PairNumbers
    ends: NDArray[np.int64]
    """Batch i of the array has the pairs from ends[i] to ends[i + 1]."""
    batches: NDArray[np.int64]
    """The numbers of the array's batches, in the order of the epoch."""

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Pairs:
        batch = self.batches[index]
        return self.pairs[self.ends[batch] : self.ends[batch + 1]].astype(np.int64)


def epoch_batches(
    corpus: EncodedCorpus, tokens_per_batch: int, seed: int, epoch: int, weights: Sequence[Fraction] = ()
) -> BatchOrder:
    """Return the pairs of each batch of an epoch, in order. Every pair occurs as often as `weights` say, or once.

    The result is a pure function of the arguments. No batch has more than `tokens_per_batch` positions on its longer
    side, padding included. Raises ConfigError if a single pair has more.
    """
    random = epoch_random(seed, epoch)
    shuffled = epoch_pairs(corpus.sizes, weights, seed, epoch, random)
    longer_side = max(corpus.source.num_tokens, corpus.target.num_tokens)
    pool_size = max(1, _BATCHES_PER_POOL * tokens_per_batch * len(corpus) // longer_side)
    ends = array("q", [0])
    for start in range(0, len(shuffled), pool_size):
        pool = shuffled[start : start + pool_size]
        in_order = _sorted_batches(corpus, pool.astype(np.int64), tokens_per_batch)
        pool[:] = np.concatenate(in_order)
        ends.extend(accumulate(map(len, in_order[1:]), initial=ends[-1] + len(in_order[0])))
    return BatchOrder(shuffled, np.array(ends), random.permutation(len(ends) - 1))


def epoch_random(seed: int, epoch: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))


def collate(corpus: EncodedCorpus, pairs: Pairs) -> Batch:
    """Make the padded batch of these pairs. Without pairs, the batch is one dummy sentence without labels."""
    if len(pairs) == 0:
        source_11, decoder_input_11, labels_11 = (torch.full((1, 1), token) for token in (EOS, BOS, PAD))
        return Batch(source_11, decoder_input_11, labels_11, torch.from_numpy(pairs), num_labels=0)
    source_BS, _ = _padded(corpus.source, pairs)
    labels_BT, real_BT = _padded(corpus.target, pairs)
    decoder_input_BT = np.full_like(labels_BT, BOS)
    # The input at a position is the label before it. After the sentence this would be EOS: write PAD there.
    decoder_input_BT[:, 1:] = np.where(real_BT[:, 1:], labels_BT[:, :-1], PAD)
    return Batch(
        source_BS=torch.from_numpy(source_BS),
        decoder_input_BT=torch.from_numpy(decoder_input_BT),
        labels_BT=torch.from_numpy(labels_BT),
        pairs_B=torch.from_numpy(pairs),
        num_labels=int(real_BT.sum()),
    )


def _padded(text: Text, pairs: Pairs) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the ids of these sentences with PAD on the right, and a mask that is True at real tokens; both BT."""
    ids, lengths_B = text.gather(pairs)
    real_BT = np.arange(lengths_B.max()) < lengths_B[:, None]
    ids_BT = np.full(real_BT.shape, PAD, np.int64)
    ids_BT[real_BT] = ids
    return ids_BT, real_BT


def _sorted_batches(corpus: EncodedCorpus, pairs: Pairs, tokens_per_batch: int) -> list[Pairs]:
    """Sort the pairs by length, and cut them into the largest batches that `tokens_per_batch` allows."""
    source_lengths, target_lengths = corpus.source.lengths(pairs), corpus.target.lengths(pairs)
    longer = np.maximum(source_lengths, target_lengths)
    keys = narrow(source_lengths), narrow(target_lengths), narrow(longer)
    order = np.lexsort(keys)  # stable; the last key counts first
    pairs, longer = pairs[order], longer[order]
    if longer[-1] > tokens_per_batch:
        raise ConfigError(
            f"training.tokens_per_batch={tokens_per_batch} is less than the {longer[-1]} pieces of pair "
            f"{pairs[-1]:,}; raise it, or lower corpus.max_length and prepare again"
        )
    batches: list[Pairs] = []
    start = 0
    while start < len(pairs):
        # The last pair of a batch is its longest, so n pairs take n * longer[n - 1] positions.
        candidates = longer[start : start + tokens_per_batch // longer[start]]
        positions = np.arange(1, len(candidates) + 1) * candidates
        end = start + int(np.searchsorted(positions, tokens_per_batch, side="right"))
        batches.append(pairs[start:end])
        start = end
    return batches
