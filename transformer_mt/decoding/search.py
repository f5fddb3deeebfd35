"""Greedy and beam search: they know Seq2Seq only, no text and no architecture.

A sentences held  W hypotheses of a sentence  C candidates  E ended hypotheses  T positions  V vocabulary
B sentences  G groups of words  g words of a group  P parts of a row
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.engine import Hypothesis
from transformer_mt.decoding.lengths import length_penalty
from transformer_mt.models.interface import DecoderState, Seq2Seq
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.vocabulary import BOS, EOS, PAD

KEEP_ABOVE = 0.75  # of the sentences held; to drop settled ones sooner costs more in copies than it saves
PARTS = 12  # of a row of logits, about


def max_lengths(source_BS: Tensor, max_extra_length: int, max_positions: int) -> list[int]:
    """How long each translation may get, EOS included: its own source's length and so many more."""
    lengths = (source_BS != PAD).sum(dim=1).tolist()
    return [min(length + max_extra_length, max_positions) for length in lengths]


def scored(tokens: list[int], log_prob: float, decoding: DecodingConfig) -> Hypothesis:
    """A hypothesis that has ended: its log-probability divided by its length penalty."""
    penalty = length_penalty(len(tokens), decoding.length_penalty, decoding.length_penalty_form)
    return Hypothesis(tokens, log_prob, log_prob / penalty)


@torch.inference_mode()
def greedy(
    model: Seq2Seq, source_BS: Tensor, constraints: Constraints, decoding: DecodingConfig, scores: bool = True
) -> list[Hypothesis | None]:
    """The most probable word at each position, up to EOS; None for a sentence whose numbers are not finite.

    A translation that has not ended when it is one short of its longest is ended there: its last word is EOS, with
    the probability that the model gives it. Without `scores` they are not a number, and no softmax is computed.
    """
    # Log-probabilities, or without `scores` logits: once it is not finite, a sum stays so.
    sums = [0.0] * len(source_BS)
    found: list[Hypothesis | None] = [None] * len(source_BS)
    held = list(range(len(source_BS)))
    state = model.start(source_BS, width=1)
    tokens_A1T = torch.full((len(held), 1, 1), BOS, device=source_BS.device)
    for length in range(1, max(constraints.max_length, default=0) + 1):
        logits_A1V, state = model.step(tokens_A1T[..., -1], state)
        logits_A1V = logits_A1V.float()
        values_A1V = logits_A1V.log_softmax(dim=-1) if scores else logits_A1V
        constraints.forbid_(logits_A1V, tokens_A1T, held, length)
        token_A1 = most_probable(logits_A1V)
        tokens_A1T = torch.cat([tokens_A1T, token_A1[..., None]], dim=-1)
        value_A = values_A1V.gather(-1, token_A1[..., None]).flatten().tolist()
        for row, (b, token, value) in enumerate(zip(held, token_A1[:, 0].tolist(), value_A, strict=True)):
            if found[b] is not None:
                continue
            sums[b] += value
            if token == EOS:
                log_prob = sums[b] if scores else math.nan
                found[b] = scored(tokens_A1T[row, 0, 1:].tolist(), log_prob, decoding)
        going_on = [row for row, b in enumerate(held) if found[b] is None]
        if not going_on:
            break
        if len(going_on) <= KEEP_ABOVE * len(held):
            rows = torch.tensor(going_on, device=source_BS.device)
            state, tokens_A1T, held = state.keep(rows), tokens_A1T[rows], [held[row] for row in going_on]
    return [hypothesis if math.isfinite(total) else None for hypothesis, total in zip(found, sums, strict=True)]


@torch.inference_mode()
def beam_search(
    model: Seq2Seq, source_BS: Tensor, constraints: Constraints, decoding: DecodingConfig
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first: n_best, or beam_size where coverage is to rank them again.

    At each position the 2 W best continuations are candidates. Those of the best W that end are finished;
    the best W that do not end live on, as long as they could still overtake: if they kept their log-probability
    and grew to the greatest length. There every hypothesis must end. A sentence is settled when none could, or when
    `patience` times W are finished.
    Nothing that happens to one sentence depends on another. One has no hypotheses if the numbers of a living one were
    not finite.
    """
    width, wanted = decoding.beam_size, decoding.beam_size if decoding.coverage_penalty else decoding.n_best
    enough = max(wanted, math.ceil(decoding.patience * width)) if decoding.patience else math.inf
    finished: list[list[Hypothesis]] = [[] for _ in constraints.max_length]
    held = list(range(len(finished)))
    not_finite: set[int] = set()
    beam = _Beam.begun(model, source_BS, width)
    for length in range(1, max(constraints.max_length, default=0) + 1):
        candidates, state, rows_not_finite = _candidates(model, beam, constraints, held, length, 2 * width)
        not_finite.update(held[row] for row in rows_not_finite)
        for row, tokens, log_prob in _ended(candidates, beam.tokens_AWT, width):
            finished[held[row]].append(scored(tokens, log_prob, decoding))
        living = _living(candidates, width)
        num_hopeful = [
            0
            if len(finished[b]) >= enough or b in not_finite
            else _num_hopeful(log_probs, finished[b], wanted, _largest_penalty(constraints.max_length[b], decoding))
            for b, log_probs in zip(held, living.score_AC.tolist(), strict=True)
        ]
        going_on = [row for row, number in enumerate(num_hopeful) if number]
        if not going_on:
            break
        beam = _go_on(living, beam.tokens_AWT, state, num_hopeful)
        if len(going_on) <= KEEP_ABOVE * len(held):
            rows = torch.tensor(going_on, device=source_BS.device)
            beam, held = beam.keep(rows), [held[row] for row in going_on]
    return [
        [] if b in not_finite else sorted(found, key=lambda hypothesis: hypothesis.score, reverse=True)[:wanted]
        for b, found in enumerate(finished)
    ]


@dataclass(frozen=True)
class _Beam:
    """The living hypotheses, best first. There may be fewer than at first, and one or two at the very first."""

    tokens_AWT: Tensor
    score_AW: Tensor
    """Log-probabilities: all are of the same length."""
    state: DecoderState

    @staticmethod
    def begun(model: Seq2Seq, source_BS: Tensor, width: int) -> "_Beam":
        """Of a sentence alone two hypotheses, of which one is none.

        For a single row, models may have other code, and weights in another order: to fetch these for one step
        takes longer than to compute a second row.
        """
        num_sentences, device = len(source_BS), source_BS.device
        width = min(width, 2) if num_sentences == 1 else 1
        return _Beam(
            tokens_AWT=torch.full((num_sentences, width, 1), BOS, device=device),
            score_AW=torch.tensor([0.0, -math.inf], device=device)[:width].repeat(num_sentences, 1),
            state=model.start(source_BS, width),
        )

    def keep(self, rows: Tensor) -> "_Beam":
        return _Beam(self.tokens_AWT[rows], self.score_AW[rows], self.state.keep(rows))


@dataclass(frozen=True)
class Candidates:
    """One more token for some hypothesis, best first."""

    score_AC: Tensor
    parent_AC: Tensor
    token_AC: Tensor


def _candidates(
    model: Seq2Seq, beam: _Beam, constraints: Constraints, held: list[int], length: int, count: int
) -> tuple[Candidates, DecoderState, list[int]]:
    """The best continuations of each sentence held, and the rows of those sentences whose numbers are not finite.

    The logits' memory, the largest there is, is free with its end.
    """
    logits_AWV, state = model.step(beam.tokens_AWT[:, :, -1], beam.state)
    logits_AWV = logits_AWV.float()
    log_probs_AWV = torch.log_softmax(logits_AWV, dim=-1, out=logits_AWV)
    rows_not_finite: list[int] = []
    if (is_nan_AW := log_probs_AWV[..., EOS].isnan()).any():  # then all of the row are
        # What is at -inf already counts for nothing: it is there because other sentences have more hypotheses.
        rows_not_finite = (is_nan_AW & (beam.score_AW > -math.inf)).any(dim=1).nonzero().flatten().tolist()
        log_probs_AWV[is_nan_AW] = -math.inf
    constraints.forbid_(log_probs_AWV, beam.tokens_AWT, held, length)
    return best_continuations(log_probs_AWV, beam.score_AW, count), state, rows_not_finite


def most_probable(logits_AWV: Tensor) -> Tensor:
    """The first of the largest of each row; AW. As torch.argmax, and some times as fast for many rows on a CPU."""
    num_words = logits_AWV.shape[-1]
    if logits_AWV.numel() == num_words:
        return logits_AWV.argmax(dim=-1)
    num_columns = _num_groups(num_words)
    num_parts = _nearest_divisor(num_words // num_columns, near=PARTS)
    logits_NPgG = logits_AWV.reshape(-1, num_parts, num_words // num_columns // num_parts, num_columns)
    part_N = logits_NPgG.amax(dim=2).amax(dim=2).argmax(dim=1)
    row_N = torch.arange(len(part_N), device=part_N.device)
    word_N = logits_NPgG[row_N, part_N].flatten(1).argmax(dim=1)
    return (part_N * (num_words // num_parts) + word_N).view(logits_AWV.shape[:-1])


def best_continuations(log_probs_AWV: Tensor, score_AW: Tensor, count: int) -> Candidates:
    """The `count` best sums of a hypothesis' log-probability and a word's, or all. At -inf, a word is forbidden.

    As torch.topk of all sums, and some times as fast: the best are in the `count` groups of words whose own best
    are the best. The words of a group are G apart: so the maxima of all groups are taken side by side.
    """
    A, W, V = log_probs_AWV.shape
    G = _num_groups(V)
    words_AWgG = log_probs_AWV.view(A, W, V // G, G)
    best_AWG = words_AWgG.amax(dim=2).add_(score_AW[..., None])
    group_AC = best_AWG.flatten(1).topk(min(count, W * G), sorted=False).indices
    parent_AC, group_AC = group_AC // G, group_AC % G

    row_A1 = torch.arange(A, device=group_AC.device)[:, None]
    score_ACg = words_AWgG[row_A1, parent_AC, :, group_AC].add_(score_AW.gather(1, parent_AC)[..., None])
    score_AC, place_AC = score_ACg.flatten(1).topk(min(count, score_ACg[0].numel()))
    chosen_AC = place_AC // (V // G)
    token_AC = place_AC % (V // G) * G + group_AC.gather(1, chosen_AC)
    return Candidates(score_AC, parent_AC.gather(1, chosen_AC), token_AC)


@cache
def _num_groups(num_words: int) -> int:
    """Of equal size, near twice the root of the number of words; each a group of its own if there is none such.

    A multiple of 32 is best: as many numbers as a vectorised loop takes at a time.
    """
    near = 2 * math.sqrt(num_words)
    for multiple in (32, 8, 1):
        number = _nearest_divisor(num_words, near, multiple)
        if near / 4 < number < near * 4:
            return number
    return num_words


@cache
def _nearest_divisor(number: int, near: float, multiple_of: int = 1) -> int:
    """The divisor, and multiple, whose ratio to `near` is nearest to 1; the number itself if there is none."""
    divisors = [divisor for divisor in range(multiple_of, number + 1, multiple_of) if number % divisor == 0]
    return min(divisors, key=lambda divisor: abs(math.log(divisor / near)), default=number)


def _ended(candidates: Candidates, tokens_AWT: Tensor, width: int) -> list[tuple[int, list[int], float]]:
    """The hypotheses that end now: the row of the sentence, the tokens, the log-probability."""
    ended_AC = (candidates.token_AC == EOS) & (candidates.score_AC > -math.inf)
    ended_AC[:, width:] = False  # a lower rank does not count: a beam of one is then greedy
    row_E, rank_E = ended_AC.nonzero(as_tuple=True)
    if not len(row_E):
        return []
    words_ET = tokens_AWT[row_E, candidates.parent_AC[row_E, rank_E], 1:].tolist()
    log_prob_E = candidates.score_AC[row_E, rank_E].tolist()
    ended = zip(row_E.tolist(), words_ET, log_prob_E, strict=True)
    return [(row, [*words, EOS], log_prob) for row, words, log_prob in ended]


def _living(candidates: Candidates, width: int) -> Candidates:
    """The best of those that do not end."""
    score_AC = candidates.score_AC.masked_fill(candidates.token_AC == EOS, -math.inf)
    score_AW, rank_AW = score_AC.topk(min(width, score_AC.shape[1]))
    return Candidates(score_AW, candidates.parent_AC.gather(1, rank_AW), candidates.token_AC.gather(1, rank_AW))


def _num_hopeful(log_probs: list[float], finished: list[Hypothesis], wanted: int, largest_penalty: float) -> int:
    """How many of the living, best first, could still become one of the wanted."""
    if len(finished) < wanted:
        bar = -math.inf
    else:
        bar = sorted((hypothesis.score for hypothesis in finished), reverse=True)[wanted - 1]
    return sum(log_prob / largest_penalty > bar for log_prob in log_probs)


def _largest_penalty(max_length: int, decoding: DecodingConfig) -> float:
    return length_penalty(max_length, decoding.length_penalty, decoding.length_penalty_form)


def _go_on(living: Candidates, tokens_AWT: Tensor, state: DecoderState, num_hopeful: list[int]) -> _Beam:
    """The hopeful of them, which are the first; where other sentences have more of them, others at -inf besides."""
    width = max(num_hopeful)
    parent_AW, token_AW, score_AW = (x[:, :width] for x in (living.parent_AC, living.token_AC, living.score_AC))
    if min(num_hopeful) < width:
        hopeful_A1 = torch.tensor(num_hopeful, device=score_AW.device)[:, None]
        score_AW = score_AW.masked_fill(torch.arange(width, device=score_AW.device) >= hopeful_A1, -math.inf)
    past_AWT = tokens_AWT.gather(1, parent_AW[..., None].expand(-1, -1, tokens_AWT.shape[-1]))
    tokens_AWT = torch.cat([past_AWT, token_AW[..., None]], dim=-1)
    return _Beam(tokens_AWT, score_AW, state.follow(parent_AW))
