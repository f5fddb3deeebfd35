"""Greedy and beam search: they know Seq2Seq only, no text and no architecture.

A sentences still searched, the rows  W alive hypotheses of a sentence  C candidates  F finished hypotheses
B sentences  T positions  V vocabulary
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.engine import Hypothesis
from transformer_mt.decoding.lengths import length_penalty
from transformer_mt.device import on_device, on_host
from transformer_mt.kernels.top_words import Candidates, best_continuations, most_probable
from transformer_mt.models.interface import DecoderState, Seq2Seq
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.vocabulary import BOS, EOS, PAD

KEEP_ABOVE = 0.75  # of the rows: to drop settled sentences sooner costs more in copies than it saves


def max_lengths(source_BS: Tensor, max_extra_length: int, max_positions: int) -> list[int]:
    """How many tokens each translation may have, EOS included: `max_extra_length` more than its source."""
    return [min(length + max_extra_length, max_positions) for length in (source_BS != PAD).sum(dim=1).tolist()]


def scored(tokens: list[int], log_prob: float, decoding: DecodingConfig) -> Hypothesis:
    """A finished hypothesis. Its score is its log-probability divided by its length penalty."""
    penalty = length_penalty(len(tokens), decoding.length_penalty, decoding.length_penalty_form)
    return Hypothesis(tokens, log_prob, log_prob / penalty)


@torch.inference_mode()
def greedy(
    model: Seq2Seq, source_BS: Tensor, constraints: Constraints, decoding: DecodingConfig, scores: bool = True
) -> list[Hypothesis | None]:
    """The most probable word at each position, up to EOS; None for a sentence whose numbers are not finite.

    A translation of the greatest length ends in EOS, whatever its probability. Without `scores` no softmax is computed.
    """
    # Log-probabilities, or without `scores` logits: a sum that is not finite once stays so.
    sums = [0.0] * len(source_BS)
    found: list[Hypothesis | None] = [None] * len(source_BS)
    sentences = list(range(len(source_BS)))  # the number of each row's sentence
    tokens_A1T = torch.full((len(sentences), 1, 1), BOS, device=source_BS.device)
    state = model.start(source_BS, width=1)
    for length in range(1, max(constraints.max_length, default=0) + 1):
        # Take the most probable word of those allowed.
        logits_A1V, state = model.step(tokens_A1T[..., -1], state)
        logits_A1V = logits_A1V.float()
        values_A1V = logits_A1V.log_softmax(dim=-1) if scores else logits_A1V
        constraints.forbid_(logits_A1V, tokens_A1T, sentences, length)
        token_A1 = most_probable(logits_A1V)
        tokens_A1T = torch.cat([tokens_A1T, token_A1[..., None]], dim=-1)

        # Set aside the translations that end now.
        value_A, words_AT = on_host(values_A1V.gather(-1, token_A1[..., None]).flatten(), tokens_A1T[:, 0])
        for row, (b, last, value) in enumerate(zip(sentences, words_AT[:, -1].tolist(), value_A.tolist(), strict=True)):
            if found[b] is None:
                sums[b] += value
                if last == EOS:
                    log_prob = sums[b] if scores else math.nan
                    found[b] = scored(words_AT[row, 1:].tolist(), log_prob, decoding)

        # Go on with the sentences that have none yet.
        going_on = [row for row, b in enumerate(sentences) if found[b] is None]
        if not going_on:
            break
        if len(going_on) <= KEEP_ABOVE * len(sentences):
            rows = on_device(going_on, source_BS.device)
            state, tokens_A1T, sentences = state.keep(rows), tokens_A1T[rows], [sentences[row] for row in going_on]
    return [hypothesis if math.isfinite(total) else None for hypothesis, total in zip(found, sums, strict=True)]


@torch.inference_mode()
def beam_search(
    model: Seq2Seq, source_BS: Tensor, constraints: Constraints, decoding: DecodingConfig
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first: `n_best`, or `beam_size` if a coverage penalty ranks them anew.

    At each position the 2 W best continuations are candidates, where W is `beam_size`. Those of the best W that end in
    EOS are finished. The best W that do not end stay alive if they are hopeful: if they could still be among the best
    by keeping their log-probability and growing to the greatest length, where all must end. A sentence is settled when
    none is hopeful, or `patience` times W are finished. It has no hypotheses if its numbers are not finite.
    """
    finished: list[list[Hypothesis]] = [[] for _ in constraints.max_length]
    not_finite: set[int] = set()
    sentences = list(range(len(finished)))  # the number of each row's sentence
    beam = _Beam.begun(model, source_BS)
    for length in range(1, max(constraints.max_length, default=0) + 1):
        # Continue each alive hypothesis by one word.
        alive, seen, state, rows_not_finite = _continued(model, beam, constraints, sentences, length, decoding)
        *candidates, tokens_AWT, alive_AW, _ = seen
        not_finite.update(sentences[row] for row in rows_not_finite)

        # Set aside the hypotheses that end now.
        for row, tokens, log_prob in _finished(Candidates(*candidates), tokens_AWT, decoding.beam_size):
            finished[sentences[row]].append(scored(tokens, log_prob, decoding))

        # Count the others that could still be among the best of their sentence.
        num_hopeful = [
            0 if b in not_finite else _num_hopeful(log_probs, finished[b], constraints.max_length[b], decoding)
            for b, log_probs in zip(sentences, alive_AW.tolist(), strict=True)
        ]

        # Go on with these, and with the sentences that have some.
        going_on = [row for row, number in enumerate(num_hopeful) if number]
        if not going_on:
            break
        beam = _go_on(alive, beam.tokens_AWT, state, num_hopeful)
        if len(going_on) <= KEEP_ABOVE * len(sentences):
            beam, sentences = beam.keep(going_on), [sentences[row] for row in going_on]
    return [[] if b in not_finite else _best(found, decoding) for b, found in enumerate(finished)]


@dataclass(frozen=True)
class _Beam:
    """The alive hypotheses of each sentence, best first: one at the beginning, at most `beam_size`."""

    tokens_AWT: Tensor
    score_AW: Tensor
    """Log-probabilities. No length penalty is needed here, where all hypotheses have the same length."""
    state: DecoderState

    @staticmethod
    def begun(model: Seq2Seq, source_BS: Tensor) -> "_Beam":
        return _Beam(
            tokens_AWT=source_BS.new_full((len(source_BS), 1, 1), BOS),
            score_AW=torch.zeros(len(source_BS), 1, device=source_BS.device),
            state=model.start(source_BS, width=1),
        )

    def keep(self, rows: list[int]) -> "_Beam":
        kept = on_device(rows, self.tokens_AWT.device)
        return _Beam(self.tokens_AWT[kept], self.score_AW[kept], self.state.keep(kept))


def _continued(
    model: Seq2Seq, beam: _Beam, constraints: Constraints, sentences: list[int], length: int, decoding: DecodingConfig
) -> tuple[Candidates, tuple[Tensor, ...], DecoderState, list[int]]:
    """The alive hypotheses, what the host sees, the state that has seen the beam, and the rows that are not finite.

    This is a function of its own so that the memory of the logits, by far the largest, is free when it returns.
    """
    logits_AWV, state = model.step(beam.tokens_AWT[:, :, -1], beam.state)
    logits_AWV = logits_AWV.float()
    log_probs_AWV = torch.log_softmax(logits_AWV, dim=-1, out=logits_AWV)
    is_nan_AW = log_probs_AWV[..., EOS].isnan()  # then the whole row is
    constraints.forbid_(log_probs_AWV, beam.tokens_AWT, sentences, length)
    alive, seen = _ranked(log_probs_AWV, is_nan_AW, beam, decoding.beam_size)
    if not seen[-1].any():
        return alive, seen, state, []
    # A hypothesis at -inf counts for nothing: it only fills the row, as other sentences have more hypotheses.
    rows_not_finite = (is_nan_AW & (beam.score_AW > -math.inf)).any(dim=1).nonzero().flatten().tolist()
    log_probs_AWV[is_nan_AW] = -math.inf
    return *_ranked(log_probs_AWV, is_nan_AW, beam, decoding.beam_size), state, rows_not_finite


def _ranked(log_probs_AWV: Tensor, is_nan_AW: Tensor, beam: _Beam, width: int) -> tuple[Candidates, tuple[Tensor, ...]]:
    """The best candidates that do not end; and for the host, which waits only here, all candidates and the rest."""
    candidates = best_continuations(log_probs_AWV, beam.score_AW, 2 * width)
    score_AC = candidates.score_AC.masked_fill(candidates.token_AC == EOS, -math.inf)
    score_AW, rank_AW = score_AC.topk(min(width, score_AC.shape[1]))
    alive = Candidates(score_AW, candidates.parent_AC.gather(1, rank_AW), candidates.token_AC.gather(1, rank_AW))
    return alive, on_host(*candidates, beam.tokens_AWT, score_AW, is_nan_AW)


def _finished(candidates: Candidates, tokens_AWT: Tensor, width: int) -> list[tuple[int, list[int], float]]:
    """The hypotheses that end now: the row of the sentence, the tokens, the log-probability."""
    ends_AC = (candidates.token_AC == EOS) & (candidates.score_AC > -math.inf)
    ends_AC[:, width:] = False  # only the best `width` may end, so that a beam of one is greedy
    row_F, rank_F = ends_AC.nonzero(as_tuple=True)
    if not len(row_F):
        return []
    words_FT = tokens_AWT[row_F, candidates.parent_AC[row_F, rank_F], 1:].tolist()
    finished = zip(row_F.tolist(), words_FT, candidates.score_AC[row_F, rank_F].tolist(), strict=True)
    return [(row, [*words, EOS], log_prob) for row, words, log_prob in finished]


def _num_hopeful(log_probs: list[float], finished: list[Hypothesis], max_length: int, decoding: DecodingConfig) -> int:
    """How many of the alive hypotheses of a sentence, best first, could still become one of its best."""
    num_wanted = _num_wanted(decoding)
    if decoding.patience and len(finished) >= max(num_wanted, math.ceil(decoding.patience * decoding.beam_size)):
        return 0
    to_beat = _best(finished, decoding)[-1].score if len(finished) >= num_wanted else -math.inf
    largest_penalty = length_penalty(max_length, decoding.length_penalty, decoding.length_penalty_form)
    return sum(log_prob / largest_penalty > to_beat for log_prob in log_probs)


def _best(finished: list[Hypothesis], decoding: DecodingConfig) -> list[Hypothesis]:
    return sorted(finished, key=lambda hypothesis: hypothesis.score, reverse=True)[: _num_wanted(decoding)]


def _num_wanted(decoding: DecodingConfig) -> int:
    return decoding.beam_size if decoding.coverage_penalty else decoding.n_best


def _go_on(alive: Candidates, tokens_AWT: Tensor, state: DecoderState, num_hopeful: list[int]) -> _Beam:
    """The beam of the hopeful hypotheses, which are the first. Rows that have fewer than others are filled at -inf."""
    width = max(num_hopeful)
    score_AW, parent_AW, token_AW = (x[:, :width] for x in alive)
    if min(num_hopeful) < width:
        hopeful_A1 = on_device(num_hopeful, score_AW.device)[:, None]
        score_AW = score_AW.masked_fill(torch.arange(width, device=score_AW.device) >= hopeful_A1, -math.inf)
    past_AWT = tokens_AWT.gather(1, parent_AW[..., None].expand(-1, -1, tokens_AWT.shape[-1]))
    return _Beam(torch.cat([past_AWT, token_AW[..., None]], dim=-1), score_AW, state.follow(parent_AW))
