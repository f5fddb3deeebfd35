"""Translations drawn from the model's distribution. Knows Seq2Seq only, no text and no architecture.

B sentences  A sentences still drawn, the rows  W samples of a sentence  T positions  V vocabulary
C candidates, most probable first
"""

import math

import numpy as np
import torch
from torch import Tensor

from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.engine import Hypothesis
from transformer_mt.decoding.search import scored
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.vocabulary import BOS, EOS


@torch.inference_mode()
def sample(
    model: Seq2Seq, source_BS: Tensor, numbers: list[int], constraints: Constraints, decoding: DecodingConfig
) -> list[list[Hypothesis]]:
    """`n_best` translations of each sentence, drawn independently piece by piece, then sorted best first.

    What is drawn depends on the seed, the sentence's number in `numbers` and which of its samples it is, not on the
    batch. Log-probabilities are the model's own. A sentence has no samples if its numbers are not finite.
    """
    samples: list[list[Hypothesis]] = [[] for _ in numbers]
    sentences, device = list(range(len(numbers))), source_BS.device  # sentences: which one each row belongs to
    width, longest = decoding.n_best, max(constraints.max_length, default=0)
    state = model.start(source_BS, width)
    tokens_AWT = torch.full((len(sentences), width, 1), BOS, device=device)
    log_probs_AWT = torch.empty(len(sentences), width, 0, device=device)
    uniform_AWT = uniform_numbers(decoding.seed, numbers, width, longest).to(device)
    for length in range(1, longest + 1):
        # Draw the next piece of each sample.
        logits_AWV, state = model.step(tokens_AWT[..., -1], state)
        log_probs_AWV = logits_AWV.float().log_softmax(dim=-1)
        is_nan_AW = log_probs_AWV[..., EOS].isnan()  # then the whole row is, and nothing can be drawn from it
        log_probs_AWV.masked_fill_(is_nan_AW[..., None], 0.0)
        constraints.forbid_(log_probs_AWV, tokens_AWT, sentences, length)
        token_AW1, log_prob_AW1 = _drawn(log_probs_AWV, uniform_AWT[..., length - 1], decoding)
        tokens_AWT = torch.cat([tokens_AWT, token_AW1], dim=-1)
        log_probs_AWT = torch.cat([log_probs_AWT, log_prob_AW1.masked_fill(is_nan_AW[..., None], math.nan)], dim=-1)

        # Set aside the sentences whose samples have all ended. What is drawn for a sample after its EOS is not used.
        has_ended_A = (tokens_AWT == EOS).any(dim=-1).all(dim=-1)
        for row in has_ended_A.nonzero().flatten().tolist():
            samples[sentences[row]] = _hypotheses(tokens_AWT[row, :, 1:], log_probs_AWT[row], decoding)

        # Go on with the others.
        rows = (~has_ended_A).nonzero().flatten()
        if not len(rows):
            break
        if len(rows) < len(sentences):
            state, sentences = state.keep(rows), [sentences[row] for row in rows.tolist()]
            tokens_AWT, log_probs_AWT, uniform_AWT = tokens_AWT[rows], log_probs_AWT[rows], uniform_AWT[rows]
    return samples


def _drawn(log_probs_AWV: Tensor, uniform_AW: Tensor, decoding: DecodingConfig) -> tuple[Tensor, Tensor]:
    """The next piece of each sample and its log-probability before temperature, top_k and top_p; AW1 each."""
    token_AW = draw(log_probs_AWV, uniform_AW, decoding.temperature, decoding.top_k, decoding.top_p)
    return token_AW[..., None], log_probs_AWV.gather(-1, token_AW[..., None])


def uniform_numbers(seed: int, numbers: list[int], num_samples: int, length: int) -> Tensor:
    """Numbers in [0, 1), BWT in fp64. Row w of sentence b is the random stream seeded by (seed, numbers[b], w)."""
    streams = [
        [np.random.default_rng((seed, number, w)).random(length) for w in range(num_samples)] for number in numbers
    ]
    return torch.from_numpy(np.array(streams).reshape(len(numbers), num_samples, length))


def draw(log_probs_AWV: Tensor, uniform_AW: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Draws a piece for each row, AW: the one at which the cumulative probability passes the uniform number.

    Probabilities are summed in the order of the vocabulary. In the order of probability, a rounding error that depends
    on the batch could swap two pieces, and another one would be drawn. The sum has thousands of terms, hence fp64.
    """
    probs_AWV = (log_probs_AWV.double() / temperature).softmax(dim=-1)
    probs_AWV = _most_probable(probs_AWV, top_k, top_p)
    sums_AWV = probs_AWV.cumsum(dim=-1)
    return torch.searchsorted(sums_AWV, uniform_AW[..., None] * sums_AWV[..., -1:], right=True)[..., 0]


def _most_probable(probs_AWV: Tensor, top_k: int, top_p: float) -> Tensor:
    """The probabilities of the `top_k` most probable pieces, and 0 for all others. 0 for top_k keeps all pieces.

    Of those kept, in the order of probability, only the first ones stay whose sum reaches `top_p` of the sum of all
    (Holtzman et al. 2020).
    """
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
        found.append(scored(tokens[:length], sum(log_probs[:length]), decoding))
    if not all(math.isfinite(hypothesis.log_prob) for hypothesis in found):
        return []
    return sorted(found, key=lambda hypothesis: hypothesis.score, reverse=True)
