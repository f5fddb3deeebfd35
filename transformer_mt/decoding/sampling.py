"""Translations drawn from the model's distribution: knows Seq2Seq only, no text and no architecture.

B sentences  A sentences still drawn  W samples of a sentence  T positions  V vocabulary
C candidates, most probable first
"""

import math

import numpy as np
import torch
from torch import Tensor

from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.engine import Hypothesis
from transformer_mt.decoding.lengths import length_penalty
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.vocabulary import BOS, EOS


@torch.inference_mode()
def sample(
    model: Seq2Seq, source_BS: Tensor, numbers: list[int], constraints: Constraints, decoding: DecodingConfig
) -> list[list[Hypothesis]]:
    """`n_best` translations of each sentence, drawn piece by piece, independently, and then sorted best first.

    What is drawn depends on the seed, the number of the sentence and which of its samples it is: on no other
    sentence of the batch. The log-probability is the model's own, whatever temperature, top_k and top_p.
    A sentence has no samples if its numbers are not finite.
    """
    samples: list[list[Hypothesis]] = [[] for _ in numbers]
    alive, device = list(range(len(numbers))), source_BS.device
    longest = max(constraints.max_length, default=0)
    state = model.start(source_BS, decoding.n_best)
    tokens_AWT = torch.full((len(alive), decoding.n_best, 1), BOS, device=device)
    log_probs_AWT = torch.empty(len(alive), decoding.n_best, 0, device=device)
    uniform_AWT = uniform_numbers(decoding.seed, numbers, decoding.n_best, longest).to(device)
    for length in range(1, longest + 1):
        logits_AWV, state = model.step(tokens_AWT[..., -1], state)
        log_probs_AWV = logits_AWV.float().log_softmax(dim=-1)
        is_nan_AW = log_probs_AWV[..., EOS].isnan()  # then all of the row are, and nothing can be drawn from them
        log_probs_AWV.masked_fill_(is_nan_AW[..., None], 0.0)
        constraints.forbid_(log_probs_AWV, tokens_AWT, alive, length)
        uniform_AW = uniform_AWT[..., length - 1]
        token_AW = draw(log_probs_AWV, uniform_AW, decoding.temperature, decoding.top_k, decoding.top_p)
        tokens_AWT = torch.cat([tokens_AWT, token_AW[..., None]], dim=-1)
        drawn_AW1 = log_probs_AWV.gather(-1, token_AW[..., None]).masked_fill(is_nan_AW[..., None], math.nan)
        log_probs_AWT = torch.cat([log_probs_AWT, drawn_AW1], dim=-1)

        # A sample that has ended is drawn on, for nothing, until the last one of its sentence has.
        ended_A = (tokens_AWT == EOS).any(dim=-1).all(dim=-1).tolist()
        for row in [row for row, ended in enumerate(ended_A) if ended]:
            samples[alive[row]] = _hypotheses(tokens_AWT[row, :, 1:], log_probs_AWT[row], decoding)
        going_on = [row for row, ended in enumerate(ended_A) if not ended]
        if going_on and len(going_on) < len(alive):
            rows = torch.tensor(going_on, device=device)
            state, tokens_AWT = state.keep(rows), tokens_AWT[rows]
            log_probs_AWT, uniform_AWT = log_probs_AWT[rows], uniform_AWT[rows]
        alive = [alive[row] for row in going_on]
        if not alive:
            break
    return samples


def uniform_numbers(seed: int, numbers: list[int], num_samples: int, length: int) -> Tensor:
    """BWT in [0, 1), fp64: row w of sentence b is the stream of (seed, numbers[b], w)."""
    streams = [
        [np.random.default_rng((seed, number, w)).random(length) for w in range(num_samples)] for number in numbers
    ]
    return torch.from_numpy(np.array(streams).reshape(len(numbers), num_samples, length))


def draw(log_probs_AWV: Tensor, uniform_AW: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """AW: the piece at which the sum of probabilities, in the order of the vocabulary, passes a uniform number.

    In the order of probability, a last bit that another batch changes could swap two pieces, and draw the other.
    In fp64, as thousands are summed.
    """
    probs_AWV = (log_probs_AWV.double() / temperature).softmax(dim=-1)
    probs_AWV = _most_probable(probs_AWV, top_k, top_p)
    sums_AWV = probs_AWV.cumsum(dim=-1)
    return torch.searchsorted(sums_AWV, uniform_AW[..., None] * sums_AWV[..., -1:], right=True)[..., 0]


def _most_probable(probs_AWV: Tensor, top_k: int, top_p: float) -> Tensor:
    """0 for all but the `top_k` most probable, and of these for all but the fewest that are `top_p` of their sum."""
    V = probs_AWV.shape[-1]
    if top_k == 0 and top_p == 1.0:
        return probs_AWV
    probs_AWC, order_AWC = probs_AWV.topk(min(top_k or V, V))
    more_probable_AWC = probs_AWC.cumsum(dim=-1) - probs_AWC
    enough_AW1 = top_p * probs_AWC.sum(dim=-1, keepdim=True)
    kept_AWC = probs_AWC.masked_fill(more_probable_AWC >= enough_AW1, 0.0)
    return torch.zeros_like(probs_AWV).scatter(-1, order_AWC, kept_AWC)


def _hypotheses(tokens_WT: Tensor, log_probs_WT: Tensor, decoding: DecodingConfig) -> list[Hypothesis]:
    """The samples of a sentence up to their EOS, best first; none if a log-probability is not finite."""
    found = []
    for tokens, log_probs in zip(tokens_WT.tolist(), log_probs_WT.tolist(), strict=True):
        length = tokens.index(EOS) + 1
        log_prob = sum(log_probs[:length])
        penalty = length_penalty(length, decoding.length_penalty, decoding.length_penalty_form)
        found.append(Hypothesis(tokens[:length], log_prob, log_prob / penalty))
    if not all(math.isfinite(hypothesis.log_prob) for hypothesis in found):
        return []
    return sorted(found, key=lambda hypothesis: hypothesis.score, reverse=True)
