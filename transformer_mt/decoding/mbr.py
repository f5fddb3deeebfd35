"""Minimum Bayes risk decoding: chooses, among several candidates, the one that is most similar to all of them.

Kumar and Byrne 2004; with samples as candidates, Eikema and Aziz 2020.

N candidates  M different n-grams
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from transformer_mt.decoding.translation import Translation
from transformer_mt.settings.search_settings import DecodingConfig

Matrix = NDArray[np.float64]
_ORDERS = 6  # character n-grams of chrF2 have 1 to 6 characters
_BETA_2 = 4.0  # beta = 2: recall counts more than precision


def least_risk(candidates: Sequence[Translation], decoding: DecodingConfig) -> list[Translation]:
    """Return up to n_best different candidates, the one with the greatest expected chrF2 (its new score) first.

    The expected chrF2 is the mean, in percent, over all candidates as references; equal texts are compared only once.
    """
    if not candidates:  # the model computed numbers that are not finite
        return []
    log_probs = np.array([candidate.log_prob for candidate in candidates])
    # Samples have equal weights, as they were drawn by probability; hypotheses of a beam search are weighted by it.
    weights = np.ones(len(log_probs)) if decoding.sampling else np.exp(log_probs - log_probs.max())
    first_of: dict[str, Translation] = {}
    for candidate in candidates:
        first_of.setdefault(candidate.text, candidate)
    number_of = {text: number for number, text in enumerate(first_of)}
    weights_N = np.bincount([number_of[candidate.text] for candidate in candidates], weights)
    expected_N = chrf_of_all(list(first_of)) @ weights_N / weights_N.sum()
    best = [replace(each, score=float(of)) for each, of in zip(first_of.values(), expected_N, strict=True)]
    return sorted(best, key=lambda candidate: -candidate.score)[: decoding.n_best]


def chrf_of_all(texts: Sequence[str]) -> Matrix:
    """Return chrF2 of each text (rows) with each text as the reference (columns); NN, in percent.

    It equals sacreBLEU's sentence_score: the F-score of precision and recall, which are means over the n-gram lengths
    that both texts have (Popović 2015).
    """
    N = len(texts)
    without_spaces = ["".join(text.split()) for text in texts]
    precision_NN, recall_NN, orders_NN = np.zeros((N, N)), np.zeros((N, N)), np.zeros((N, N))
    for order in range(1, _ORDERS + 1):
        counts_NM = _ngram_counts(without_spaces, order)
        sizes_N = counts_NM.sum(axis=1)
        matches_NN = _matches(counts_NM)
        sizes_N1 = np.maximum(sizes_N, 1)[:, None]
        both_NN = (sizes_N[:, None] > 0) & (sizes_N > 0)
        precision_NN += matches_NN / sizes_N1 * both_NN
        recall_NN += matches_NN / sizes_N1.T * both_NN
        orders_NN += both_NN
    precision_NN /= np.maximum(orders_NN, 1)
    recall_NN /= np.maximum(orders_NN, 1)
    denominator_NN = _BETA_2 * precision_NN + recall_NN
    score_NN: Matrix = (1 + _BETA_2) * precision_NN * recall_NN / np.where(denominator_NN > 0, denominator_NN, 1)
    return 100 * score_NN


def _ngram_counts(texts: Sequence[str], order: int) -> NDArray[np.int32]:
    """Return how often each text has each n-gram of this many characters; NM."""
    counters = [Counter(text[at : at + order] for at in range(len(text) - order + 1)) for text in texts]
    number_of = {ngram: number for number, ngram in enumerate(set().union(*counters))}
    counts_NM = np.zeros((len(texts), len(number_of)), np.int32)
    for row, counter in enumerate(counters):
        for ngram, count in counter.items():
            counts_NM[row, number_of[ngram]] = count
    return counts_NM


def _matches(counts_NM: NDArray[np.int32]) -> Matrix:
    """Return how many n-grams each two texts share; one that they have a and b times counts min(a, b) times; NN.

    min(a, b) is the number of k >= 1 that are at most a and at most b: so this sums matrix products, which is fast.
    """
    matches_NN = np.zeros((len(counts_NM), len(counts_NM)))
    most_M = counts_NM.max(axis=0, initial=0)
    for k in range(1, int(most_M.max(initial=0)) + 1):
        at_least_NM = (counts_NM[:, most_M >= k] >= k).astype(np.float32)  # exact: sums stay far below 2^24
        matches_NN += at_least_NM @ at_least_NM.T
    return matches_NN
