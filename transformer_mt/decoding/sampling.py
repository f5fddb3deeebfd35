"""Translates word by word, without a beam: greedily, or by drawing from the model's distribution.

A rows: sentences not yet translated  W translations of a sentence  B sentences  T positions  V vocabulary
C candidates, most probable first
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from transformer_mt.base.languages import BOS, EOS
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.hypothesis import Hypothesis
from transformer_mt.decoding.search import KEEP_ABOVE, scored
from transformer_mt.kernels.device import on_device, on_host
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.settings.search_settings import DecodingConfig

Choose = Callable[[Tensor, Tensor, list[int], int], tuple[Tensor, Tensor]]
"""Takes the logits AWV, the tokens so far AWT, the sentences of the rows and the number of the next word, counted from
1. Returns the next word of each translation and its log-probability, AW each."""


@torch.inference_mode()
def greedy(
    model: Seq2Seq, source_BS: Tensor, constraints: Constraints, decoding: DecodingConfig, scores: bool = True
) -> list[Hypothesis | None]:
    """The most probable word at each position, up to EOS; None for a sentence whose numbers are not finite.

    A translation of the greatest length ends in EOS, whatever its probability. Without `scores`, this computes no
    softmax, and the scores are NaN.
    """

    def choose(logits_AWV: Tensor, tokens_AWT: Tensor, sentences: list[int], length: int) -> tuple[Tensor, Tensor]:
        values_AWV = logits_AWV.log_softmax(dim=-1) if scores else logits_AWV
        constraints.forbid_(logits_AWV, tokens_AWT, sentences, length)
        token_AW = model.faster(most_probable)(logits_AWV)
        return token_AW, values_AWV.gather(-1, token_AW[..., None])[..., 0]

    found: list[Hypothesis | None] = []
    for [(tokens, values)] in _word_by_word(model, source_BS, 1, constraints, choose):
        log_prob = sum(values)  # without `scores`, of logits: good enough to see whether they are finite
        is_finite = math.isfinite(log_prob)
        found.append(scored(tokens, log_prob if scores else math.nan, decoding) if is_finite else None)
    return found


@torch.inference_mode()
def sample(
    model: Seq2Seq, source_BS: Tensor, numbers: list[int], constraints: Constraints, decoding: DecodingConfig
) -> list[list[Hypothesis]]:
    """`n_best` translations of each sentence, drawn independently piece by piece, then sorted best first.

    A sample depends on the seed, on the sentence's number in `numbers` and on the sample's number, not on the batch.
    Log-probabilities are the model's own. A sentence has no samples if its log-probabilities are not finite.
    """
    longest = max(constraints.max_length, default=0)
    uniform_BWT = uniform_numbers(decoding.seed, numbers, decoding.n_best, longest).to(source_BS.device)

    def choose(logits_AWV: Tensor, tokens_AWT: Tensor, sentences: list[int], length: int) -> tuple[Tensor, Tensor]:
        log_probs_AWV = logits_AWV.log_softmax(dim=-1)
        is_nan_AW = log_probs_AWV[..., EOS].isnan()  # then all of its row is NaN, and nothing can be drawn
        log_probs_AWV.masked_fill_(is_nan_AW[..., None], 0.0)
        constraints.forbid_(log_probs_AWV, tokens_AWT, sentences, length)
        uniform_AW = uniform_BWT[on_device(sentences, source_BS.device), :, length - 1]
        token_AW = draw(log_probs_AWV, uniform_AW, decoding.temperature, decoding.top_k, decoding.top_p)
        log_prob_AW = log_probs_AWV.gather(-1, token_AW[..., None])[..., 0]
        return token_AW, log_prob_AW.masked_fill(is_nan_AW, math.nan)

    samples = []
    for words in _word_by_word(model, source_BS, decoding.n_best, constraints, choose):
        found = [scored(tokens, sum(log_probs), decoding) for tokens, log_probs in words]
        is_finite = all(math.isfinite(hypothesis.log_prob) for hypothesis in found)
        samples.append(sorted(found, key=lambda each: each.score, reverse=True) if is_finite else [])
    return samples


def _word_by_word(
    model: Seq2Seq, source_BS: Tensor, width: int, constraints: Constraints, choose: Choose
) -> list[list[tuple[list[int], list[float]]]]:
    """`width` translations of each sentence: tokens up to EOS, and their log-probabilities."""
    found: list[list[tuple[list[int], list[float]]]] = [[] for _ in constraints.max_length]
    sentences, device = list(range(len(found))), source_BS.device  # sentences: the sentence of each row
    tokens_AWT = torch.full((len(found), width, 1), BOS, device=device)
    log_probs_AWT = torch.empty(len(found), width, 0, device=device)
    state = model.start(source_BS, width)
    for length in range(1, max(constraints.max_length, default=0) + 1):
        logits_AWV, state = model.step(tokens_AWT[..., -1], state)
        token_AW, log_prob_AW = choose(logits_AWV.float(), tokens_AWT, sentences, length)
        tokens_AWT = torch.cat([tokens_AWT, token_AW[..., None]], dim=-1)
        log_probs_AWT = torch.cat([log_probs_AWT, log_prob_AW[..., None]], dim=-1)

        # Collect the sentences that have only finished translations. Tokens after an EOS are not used.
        has_ended_A, *made = on_host((tokens_AWT == EOS).any(dim=-1).all(dim=-1), tokens_AWT[..., 1:], log_probs_AWT)
        for row in has_ended_A.nonzero()[:, 0].tolist():
            if not found[sentences[row]]:
                for tokens, log_probs in zip(*(x_AWT[row].tolist() for x_AWT in made), strict=True):
                    end = tokens.index(EOS) + 1
                    found[sentences[row]].append((tokens[:end], log_probs[:end]))

        # Continue with the others.
        unfinished = [row for row, sentence in enumerate(sentences) if not found[sentence]]
        if not unfinished:
            break
        if len(unfinished) <= KEEP_ABOVE * len(sentences):
            rows, sentences = on_device(unfinished, device), [sentences[row] for row in unfinished]
            state, tokens_AWT, log_probs_AWT = state.keep(rows), tokens_AWT[rows], log_probs_AWT[rows]
    return found


def most_probable(logits_AWV: Tensor) -> Tensor:
    """The id of the largest logit of each row, AW; among equal ones, the first."""
    return logits_AWV.argmax(dim=-1)


def uniform_numbers(seed: int, numbers: list[int], num_samples: int, length: int) -> Tensor:
    """Numbers in [0, 1), BWT in fp64. Row w of sentence b is the random stream seeded by (seed, numbers[b], w)."""
    streams = [
        [np.random.default_rng((seed, number, w)).random(length) for w in range(num_samples)] for number in numbers
    ]
    return torch.from_numpy(np.array(streams).reshape(len(numbers), num_samples, length))


def draw(log_probs_AWV: Tensor, uniform_AW: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Draw a piece for each row, AW: the one at which the cumulative probability passes the uniform number.

    The sum follows the order of the vocabulary. In the order of probability, a rounding error that depends on the batch
    could swap two pieces, and this would draw another piece. The sum has thousands of terms, hence fp64.
    """
    probs_AWV = (log_probs_AWV.double() / temperature).softmax(dim=-1)
    probs_AWV = _kept(probs_AWV, top_k, top_p)
    sums_AWV = probs_AWV.cumsum(dim=-1)
    return torch.searchsorted(sums_AWV, uniform_AW[..., None] * sums_AWV[..., -1:], right=True)[..., 0]


def _kept(probs_AWV: Tensor, top_k: int, top_p: float) -> Tensor:
    """The probabilities of the `top_k` most probable pieces, and 0 for all others. A top_k of 0 keeps all pieces.

    Of the kept ones, only the most probable stay: as many as are needed for a share of `top_p` of their sum (Holtzman
    et al. 2020).
    """
    V = probs_AWV.shape[-1]
    if top_k == 0 and top_p == 1.0:
        return probs_AWV
    probs_AWC, order_AWC = probs_AWV.topk(min(top_k or V, V))
    more_probable_AWC = probs_AWC.cumsum(dim=-1) - probs_AWC
    enough_AW1 = top_p * probs_AWC.sum(dim=-1, keepdim=True)
    kept_AWC = probs_AWC.masked_fill(more_probable_AWC >= enough_AW1, 0.0)
    return torch.zeros_like(probs_AWV).scatter(-1, order_AWC, kept_AWC)
