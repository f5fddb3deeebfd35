"""Decides which pairs an epoch has: of several corpora each as often as its weight says, in a shuffled order."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.errors import ConfigError
from transformer_mt.host_memory import free_memory

if TYPE_CHECKING:
    from transformer_mt.settings.corpus import CorpusConfig

PairNumbers = NDArray[Any]  # int32 as long as all numbers fit into it, otherwise int64

_BLOCK = 2**20  # numbers written at once
_DIGITS = 6  # of a weight that a temperature makes, so that it is the same on machines whose pow() differs


def weights_of(corpus: "CorpusConfig", sizes: Sequence[int]) -> tuple[Fraction, ...]:
    """Return how many times an epoch has each pair of each corpus; `sizes` are the numbers of their pairs.

    With a temperature T, corpora of n pairs are drawn in proportion to n^(1/T), and the largest has weight 1. Raises
    ConfigError if an epoch would have no pair, or too many.
    """
    largest = max(sizes)
    if corpus.temperature is not None:
        power = 1 - 1 / corpus.temperature
        weights = tuple(Fraction(round((largest / max(size, 1)) ** power, _DIGITS)) for size in sizes)
    else:
        # By its decimal digits: the fraction 0.1 is one tenth, so ten epochs have every pair once.
        weights = tuple(Fraction(str(text.weight or 1)) for text in corpus.training_corpora)
    num_pairs = sum(size * weight for size, weight in zip(sizes, weights, strict=True))
    most = free_memory() // np.dtype(_dtype_of(sizes)).itemsize
    if not 1 <= num_pairs <= most:
        raise ConfigError(
            f"with these weights of corpus.train (or corpus.temperature), an epoch has {float(num_pairs):,.3g} pairs; "
            f"it must have 1 to {most:,}, whose order fits into the free memory of this machine: "
            f"{'raise' if num_pairs < 1 else 'lower'} the weights"
        )
    return weights


def epoch_pairs(
    sizes: Sequence[int], weights: Sequence[Fraction], seed: int, epoch: int, random: np.random.Generator
) -> PairNumbers:
    """Return the numbers of the pairs of an epoch, shuffled by `random`; without weights, every pair once.

    Numbers run through the corpora, of which `sizes` are the numbers of pairs. A pair of weight 2.25 is there 2 or 3
    times. Which pairs are there once more is the next part of a shuffle that only the seed decides, so in four epochs
    each pair is there exactly 9 times.
    """
    dtype = _dtype_of(sizes)
    weights = weights or [Fraction(1)] * len(sizes)
    shares = [share(size, weight, epoch) for size, weight in zip(sizes, weights, strict=True)]
    order = np.empty(sum(size * copies + more for size, (copies, _, more) in zip(sizes, shares, strict=True)), dtype)
    first = at = 0
    for number, (size, (copies, start, more)) in enumerate(zip(sizes, shares, strict=True)):
        for _ in range(copies):
            for begin in range(0, size, _BLOCK):
                end = min(begin + _BLOCK, size)
                order[at + begin : at + end] = np.arange(first + begin, first + end, dtype=dtype)
            at += size
        if more:
            shuffled = _fixed_shuffle(size, dtype, seed, number)
            to_end = min(more, size - start)
            order[at : at + to_end] = shuffled[start : start + to_end]
            order[at + to_end : at + more] = shuffled[: more - to_end]
            np.add(order[at : at + more], dtype(first), out=order[at : at + more])
            at += more
        first += size
    random.shuffle(order)
    return order


def _dtype_of(sizes: Sequence[int]) -> type[np.signedinteger[Any]]:
    return np.int32 if sum(sizes) < 2**31 else np.int64


def share(size: int, weight: Fraction, epoch: int) -> tuple[int, int, int]:
    """Return what an epoch has of a corpus: whole copies, then where in a shuffle of it more begins, and how many.

    The shuffle is a ring: after its last pair comes its first.
    """
    copies, fraction = divmod(weight, 1)
    begins, ends = (int(fraction * size * number) for number in (epoch, epoch + 1))
    return int(copies), begins % size if size else 0, ends - begins


def _fixed_shuffle(size: int, dtype: type[np.signedinteger[Any]], seed: int, number: int) -> PairNumbers:
    """The pairs of a corpus in the order in which successive epochs take parts of them."""
    shuffled = np.arange(size, dtype=dtype)
    np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, number, 1]))).shuffle(shuffled)
    return shuffled
