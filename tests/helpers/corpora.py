"""Corpora of random ids, shared by the tests."""

from collections.abc import Callable

import numpy as np

from transformer_mt.batches.encoded import EncodedCorpus

MakeCorpus = Callable[[list[int], list[int]], EncodedCorpus]


def lognormal(count: int, seed: int, largest: int = 100) -> tuple[list[int], list[int]]:
    """Lengths of sources and of targets, spread as those of real corpora are."""
    generator = np.random.default_rng(seed)
    sources = np.clip(np.exp(generator.normal(2.5, 0.6, count)).round(), 1, largest)
    targets = np.clip((sources * np.exp(generator.normal(0, 0.2, count))).round(), 1, largest)
    return sources.astype(int).tolist(), targets.astype(int).tolist()


def sentence_of(corpus: EncodedCorpus, side: str, pair: int) -> list[int]:
    text = corpus.source if side == "source" else corpus.target
    return [int(i) for i in text.ids[text.offsets[pair] : text.offsets[pair + 1]]]
