"""Beam search: it knows Seq2Seq only, no text and no architecture. With a beam of one it is greedy search.

A rows: sentences still searched  W living hypotheses of a sentence  C candidates  B sentences  T positions
V vocabulary  X continuations, W times V
"""

import math
from heapq import nlargest
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_mt.base.languages import BOS, EOS
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.hypothesis import Hypothesis, length_penalty
from transformer_mt.kernels.device import on_device, on_host
from transformer_mt.models.interface import DecoderState, Seq2Seq
from transformer_mt.settings.search_settings import DecodingConfig

Candidate = tuple[float, int, int]  # log-probability, which of the W hypotheses is continued, by which word
BY_SCORE = attrgetter("score")
KEEP_ABOVE = 0.75  # of the rows: if more are still searched, finished ones stay, because dropping them needs copies


def scored(tokens: list[int], log_prob: float, decoding: DecodingConfig) -> Hypothesis:
    """A finished hypothesis. Its score is its log-probability divided by its length penalty."""
    penalty = length_penalty(len(tokens), decoding.length_penalty, decoding.length_penalty_form)
    return Hypothesis(tokens, log_prob, log_prob / penalty)


class Beam(NamedTuple):
    """The living hypotheses of each sentence, best first. Rows with fewer of them get extra ones at -inf."""

    tokens_AWT: Tensor
    log_prob_AW: Tensor
    state: DecoderState


@torch.inference_mode()
def beam_search(
    model: Seq2Seq, source_BS: Tensor, constraints: Constraints, decoding: DecodingConfig
) -> list[list[Hypothesis]]:
    """The `n_best` best hypotheses of each sentence, best first; none for a sentence whose numbers are not finite.

    At each position the 2 W best continuations are candidates, where W is `beam_size`. Those of the best W that end in
    EOS are finished; of the others, the best stay alive (see `_living`). A sentence is done when none is alive.
    """
    finished: list[list[Hypothesis]] = [[] for _ in constraints.max_length]
    sentences = list(range(len(finished)))  # the number of each row's sentence
    living: list[list[Candidate]] = [[(0.0, 0, BOS)] for _ in sentences]
    first_AW1, log_prob_AW = source_BS[:, :1, None], torch.zeros_like(source_BS[:, :1], dtype=torch.float32)
    beam = Beam(torch.full_like(first_AW1, BOS), log_prob_AW, model.start(source_BS, width=1))
    for length in range(1, max(constraints.max_length, default=0) + 1):
        # Continue each hypothesis by one word.
        log_probs_AWV, state = log_probs(model, beam, constraints, sentences, length)
        best = model.faster(best_continuations)(log_probs_AWV, beam.log_prob_AW, 2 * decoding.beam_size)
        del log_probs_AWV  # by far the largest tensor
        *columns, past_AWT = on_host(*best, beam.tokens_AWT)

        # Collect the hypotheses that end now, and choose those that stay alive.
        for row, numbers in enumerate(zip(*(x_AC.tolist() for x_AC in columns), strict=True)):
            if living[row]:
                candidates, b = list(zip(*numbers, strict=True)), sentences[row]
                finished[b] += _ends(candidates, past_AWT[row], decoding)
                living[row] = _living(candidates, finished[b], constraints.max_length[b], decoding)
                if math.isnan(candidates[0][0]):
                    finished[b], living[row] = [], []

        # Make the next beam of them, and drop the sentences that are done.
        searched = [row for row, each in enumerate(living) if each]
        if not searched:
            break
        beam = next_beam(living, beam.tokens_AWT, state)
        if len(searched) <= KEEP_ABOVE * len(sentences):
            rows = on_device(searched, source_BS.device)
            beam = Beam(beam.tokens_AWT[rows], beam.log_prob_AW[rows], beam.state.keep(rows))
            sentences, living = [sentences[row] for row in searched], [living[row] for row in searched]
    return [nlargest(decoding.n_best, hypotheses, key=BY_SCORE) for hypotheses in finished]


def log_probs(
    model: Seq2Seq, beam: Beam, constraints: Constraints, sentences: list[int], length: int
) -> tuple[Tensor, DecoderState]:
    """The log-probabilities AWV of each next word, -inf if it is forbidden, and the state with the last words."""
    logits_AWV, state = model.step(beam.tokens_AWT[..., -1], beam.state)
    logits_AWV = logits_AWV.float()
    log_probs_AWV = torch.log_softmax(logits_AWV, dim=-1, out=logits_AWV)
    constraints.forbid_(log_probs_AWV, beam.tokens_AWT, sentences, length)
    return log_probs_AWV, state


def best_continuations(log_probs_AWV: Tensor, log_prob_AW: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best continuations over all hypotheses of each sentence, as the columns of Candidate; AC each."""
    sums_AX = (log_probs_AWV + log_prob_AW[..., None]).flatten(1)
    log_prob_AC, place_AC = sums_AX.topk(min(count, sums_AX.shape[1]))
    return log_prob_AC, place_AC // log_probs_AWV.shape[-1], place_AC % log_probs_AWV.shape[-1]


def _ends(candidates: list[Candidate], past_WT: Tensor, decoding: DecodingConfig) -> list[Hypothesis]:
    """The hypotheses of a sentence that end now. Only the best W candidates may end: so a beam of one is greedy."""
    return [
        scored([*past_WT[parent, 1:].tolist(), EOS], log_prob, decoding)
        for log_prob, parent, token in candidates[: decoding.beam_size]
        if token == EOS and log_prob > -math.inf
    ]


def _living(
    candidates: list[Candidate], finished: list[Hypothesis], max_length: int, decoding: DecodingConfig
) -> list[Candidate]:
    """The best W candidates that do not end and could still be among the `n_best` of their sentence.

    The best possible score of a candidate is its log-probability, divided by the penalty of the greatest length. None
    stays alive when `patience` times W hypotheses are finished.
    """
    enough = max(decoding.n_best, math.ceil(decoding.patience * decoding.beam_size))
    if decoding.patience and len(finished) >= enough:
        return []
    best = nlargest(decoding.n_best, finished, key=BY_SCORE)
    to_beat = best[-1].score if len(best) == decoding.n_best else -math.inf
    largest_penalty = length_penalty(max_length, decoding.length_penalty, decoding.length_penalty_form)
    others = [candidate for candidate in candidates if candidate[2] != EOS][: decoding.beam_size]
    return [candidate for candidate in others if candidate[0] / largest_penalty > to_beat]


def next_beam(living: list[list[Candidate]], tokens_AWT: Tensor, state: DecoderState) -> Beam:
    """The beam of these candidates. A short row repeats its best at -inf, so that all numbers stay finite."""
    width, device = max(map(len, living)), tokens_AWT.device
    filled = []
    for row in living:
        _, *best = row[0] if row else (0.0, 0, EOS)
        filled += [*row, *[(-math.inf, *best)] * (width - len(row))]
    log_prob_AW, parent_AW, token_AW = (on_device(x, device).view(-1, width) for x in zip(*filled, strict=True))
    past_AWT = tokens_AWT.gather(1, parent_AW[..., None].expand(-1, -1, tokens_AWT.shape[-1]))
    return Beam(torch.cat([past_AWT, token_AW[..., None]], dim=-1), log_prob_AW, state.follow(parent_AW))
