"""Greedy and beam search: they know Seq2Seq only, no text and no architecture.

A sentences still searched  W hypotheses of a sentence  C candidates  T positions  V vocabulary  B sentences
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt.decoding.engine import Hypothesis
from transformer_mt.models.interface import DecoderState, Seq2Seq
from transformer_mt.vocabulary import BOS, EOS, PAD


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha (Wu et al. 2016, eq. 14); the length counts EOS."""
    return float(((5 + length) / 6) ** alpha)


def max_lengths(source_BS: Tensor, max_extra_length: int, max_positions: int) -> list[int]:
    """How long each translation may get, EOS included: its own source's length and so many more."""
    lengths = (source_BS != PAD).sum(dim=1).tolist()
    return [min(length + max_extra_length, max_positions) for length in lengths]


def scored(tokens: list[int], log_prob: float, alpha: float) -> Hypothesis:
    """A hypothesis that has ended: its log-probability divided by its length penalty."""
    return Hypothesis(tokens, log_prob, log_prob / length_penalty(len(tokens), alpha))


@torch.inference_mode()
def greedy(model: Seq2Seq, source_BS: Tensor, max_length: list[int], alpha: float = 0.0) -> list[Hypothesis]:
    """The most probable word at each position, up to EOS.

    A translation that has not ended when it is one short of its `max_length` is ended there: its last
    word is EOS, with the probability that the model gives it.
    """
    state = model.start(source_BS, width=1)
    tokens: list[list[int]] = [[] for _ in max_length]
    log_prob = [0.0] * len(max_length)
    alive = list(range(len(max_length)))
    token_A1 = torch.full((len(alive), 1), BOS, device=source_BS.device)
    for length in range(1, max(max_length, default=0) + 1):
        logits_A1V, state = model.step(token_A1, state)
        log_probs_A1V = _allowed(logits_A1V, [length == max_length[b] for b in alive])
        best_A1, token_A1 = log_probs_A1V.max(dim=-1)
        for b, best, token in zip(alive, best_A1[:, 0].tolist(), token_A1[:, 0].tolist(), strict=True):
            tokens[b].append(token)
            log_prob[b] += best
        going_on = [row for row, b in enumerate(alive) if tokens[b][-1] != EOS]
        if not going_on:
            break
        if len(going_on) < len(alive):
            rows = torch.tensor(going_on, device=source_BS.device)
            state, token_A1 = state.keep(rows), token_A1[rows]
            alive = [alive[row] for row in going_on]
    return [scored(words, total, alpha) for words, total in zip(tokens, log_prob, strict=True)]


@torch.inference_mode()
def beam_search(
    model: Seq2Seq, source_BS: Tensor, width: int, alpha: float, max_length: list[int]
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first: at least one, at most `width`.

    At each position the 2 W best continuations are candidates. Those of the best W that end are finished;
    the best W that do not end live on. A sentence is settled when no living hypothesis can overtake its
    best finished one, even if it kept its log-probability and grew to its `max_length`. There every
    hypothesis must end. Nothing that happens to one sentence depends on another.
    """
    finished: list[list[Hypothesis]] = [[] for _ in max_length]
    alive = list(range(len(max_length)))
    beam = _Beam.empty(model.start(source_BS, width), len(alive), width, source_BS.device)
    for length in range(1, max(max_length, default=0) + 1):
        logits_AWV, state = model.step(beam.tokens_AWT[:, :, -1], beam.state)
        log_probs_AWV = _allowed(logits_AWV, [length == max_length[b] for b in alive])
        candidates = _best_candidates(beam.score_AW[..., None] + log_probs_AWV, 2 * width)
        for row, hypothesis in _ended(candidates, beam.tokens_AWT, width, alpha):
            finished[alive[row]].append(hypothesis)
        beam = _go_on(candidates, beam.tokens_AWT, state, width)

        best_living = beam.score_AW[:, 0].tolist()
        going_on = [
            row
            for row, b in enumerate(alive)
            if not _settled(finished[b], best_living[row] / length_penalty(max_length[b], alpha))
        ]
        if not going_on:
            break
        if len(going_on) < len(alive):
            beam = beam.keep(torch.tensor(going_on, device=source_BS.device))
            alive = [alive[row] for row in going_on]
    return [sorted(found, key=lambda h: h.score, reverse=True)[:width] for found in finished]


@dataclass(frozen=True)
class _Beam:
    """The living hypotheses, best first."""

    tokens_AWT: Tensor
    score_AW: Tensor
    """Log-probabilities: all are of the same length."""
    state: DecoderState

    @staticmethod
    def empty(state: DecoderState, num_sentences: int, width: int, device: torch.device) -> "_Beam":
        tokens_AW1 = torch.full((num_sentences, width, 1), BOS, device=device)
        score_AW = torch.full((num_sentences, width), -math.inf, device=device)
        score_AW[:, 0] = 0.0  # all begin equal: only one may grow at first
        return _Beam(tokens_AW1, score_AW, state)

    def keep(self, rows: Tensor) -> "_Beam":
        return _Beam(self.tokens_AWT[rows], self.score_AW[rows], self.state.keep(rows))


@dataclass(frozen=True)
class _Candidates:
    """One more token for some hypothesis, best first."""

    score_AC: Tensor
    parent_AC: Tensor
    token_AC: Tensor


def _allowed(logits_AWV: Tensor, must_end: list[bool]) -> Tensor:
    """Log-probabilities in fp32; -inf for PAD and BOS, which are no words, and for all but EOS at the end."""
    log_probs_AWV = logits_AWV.float().log_softmax(dim=-1)
    log_probs_AWV[..., [PAD, BOS]] = -math.inf
    if any(must_end):
        rows = torch.tensor(must_end, device=logits_AWV.device)
        ending_AW = log_probs_AWV[rows][..., EOS]
        log_probs_AWV[rows] = -math.inf
        log_probs_AWV[rows, :, EOS] = ending_AW
    return log_probs_AWV


def _best_candidates(total_AWV: Tensor, num_candidates: int) -> _Candidates:
    _, W, V = total_AWV.shape
    score_AC, index_AC = total_AWV.flatten(1).topk(min(num_candidates, W * V))
    return _Candidates(score_AC, index_AC // V, index_AC % V)


def _ended(candidates: _Candidates, tokens_AWT: Tensor, width: int, alpha: float) -> list[tuple[int, Hypothesis]]:
    """The hypotheses that end now, each with the row of its sentence."""
    ended_AC = (candidates.token_AC == EOS) & (candidates.score_AC > -math.inf)
    ended_AC[:, width:] = False  # a lower rank does not count: a beam of one is then greedy
    found = []
    for row, rank in ended_AC.nonzero().tolist():
        parent = candidates.parent_AC[row, rank]
        log_prob = candidates.score_AC[row, rank].item()
        words = [*tokens_AWT[row, parent, 1:].tolist(), EOS]
        found.append((row, scored(words, log_prob, alpha)))
    return found


def _go_on(candidates: _Candidates, tokens_AWT: Tensor, state: DecoderState, width: int) -> _Beam:
    """The best W candidates that do not end."""
    living_AC = candidates.score_AC.masked_fill(candidates.token_AC == EOS, -math.inf)
    score_AW, rank_AW = living_AC.topk(width)
    parent_AW = candidates.parent_AC.gather(1, rank_AW)
    past_AWT = tokens_AWT.gather(1, parent_AW[..., None].expand(-1, -1, tokens_AWT.shape[-1]))
    token_AW1 = candidates.token_AC.gather(1, rank_AW)[..., None]
    return _Beam(torch.cat([past_AWT, token_AW1], dim=-1), score_AW, state.follow(parent_AW))


def _settled(finished: list[Hypothesis], best_to_come: float) -> bool:
    return any(hypothesis.score >= best_to_come for hypothesis in finished)
