"""Beam search for translations that have certain phrases: dynamic beam allocation (Post and Vilar 2018).

The hypotheses of a sentence that still lack equally many pieces of its phrases form a bank. Each bank keeps its best
hypotheses, because those that have written an improbable phrase would lose against those that have not.

A rows: sentences still searched  W living hypotheses of a sentence  C candidates  B sentences  T positions
V vocabulary  N living hypotheses of all sentences  M continuations that go on with a phrase
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_mt.base.languages import BOS, EOS, KEEP
from transformer_mt.decoding import search
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.hypothesis import Hypothesis, length_penalty
from transformer_mt.decoding.word_pieces import byte_of
from transformer_mt.kernels.device import on_device, on_host
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.text.terms import IN_WORD

Phrase = tuple[tuple[int, ...], ...]
"""The pieces of each alternative of a phrase; one of them suffices."""


def ends_word(piece: str) -> bool:
    """Whether a word that stands before this piece certainly ends there."""
    return not (re.match(IN_WORD, piece) or byte_of(piece) is not None or piece in KEEP)


def has_phrases(tokens: Sequence[int], phrases: Sequence[Sequence[Sequence[int]]], ends_word: Sequence[bool]) -> bool:
    """Whether a translation that ends in EOS has all phrases, as `constrained_search` finds them."""
    progress = Progress.at_first(phrases)
    for token in tokens[:-1]:
        progress = progress.after(token, ends_word=ends_word[token])
    return progress.num_lacking == 0


class Progress(NamedTuple):
    """What a hypothesis has of the phrases of its sentence."""

    lacking: tuple[Phrase, ...]
    begun: tuple[int, ...] = ()
    """Its last pieces, if an alternative of a phrase in `lacking` begins with them, or is equal to them."""

    @classmethod
    def at_first(cls, phrases: Sequence[Sequence[Sequence[int]]]) -> "Progress":
        """The progress before the first piece."""
        return cls(tuple(tuple(map(tuple, phrase)) for phrase in phrases))

    @property
    def num_lacking(self) -> int:
        """The least number of pieces that complete all phrases."""
        shortest = [min(map(len, phrase)) for phrase in self.lacking]
        begun = [
            len(pieces) - len(self.begun) - fewest
            for phrase, fewest in zip(self.lacking, shortest, strict=True)
            for pieces in phrase
            if self.begun and pieces[: len(self.begun)] == self.begun
        ]
        return sum(shortest) + min([0, *begun])

    @property
    def next_pieces(self) -> set[int]:
        """The pieces that go on with a phrase or begin one."""
        every, length = [pieces for phrase in self.lacking for pieces in phrase], len(self.begun)
        longer = {pieces[length] for pieces in every if pieces[:length] == self.begun and len(pieces) > length}
        return longer | {pieces[0] for pieces in every}

    def after(self, piece: int, *, ends_word: bool) -> "Progress":
        """The progress of the hypothesis that continues with this piece, before which a word may end."""
        longer, lacking = (*self.begun, piece), self.lacking
        if _begin_one(longer, lacking):
            return Progress(lacking, longer)
        having = [number for number, phrase in enumerate(lacking) if self.begun in phrase]
        if ends_word and having:  # the last pieces are a phrase, which it has from the end of the word on
            # Of several phrases with this alternative, it counts for the one that needs the most pieces otherwise.
            number = max(having, key=lambda number: min(map(len, lacking[number])))
            lacking, longer = (*lacking[:number], *lacking[number + 1 :]), (piece,)
        ends = (longer[start:] for start in range(len(longer)))
        return Progress(lacking, next((end for end in ends if _begin_one(end, lacking)), ()))


def _begin_one(begun: tuple[int, ...], phrases: Sequence[Phrase]) -> bool:
    return any(pieces[: len(begun)] == begun for phrase in phrases for pieces in phrase)


@dataclass
class _Row:
    """A sentence that is still searched."""

    number: int
    progress: list[Progress]
    """That of each living hypothesis."""
    width: int
    """The most hypotheses that stay alive: `beam_size`, and one for each piece of a phrase, so for each bank."""
    living: list[search.Candidate] = field(default_factory=lambda: [(0.0, 0, BOS)])
    ended: list[tuple[int, Hypothesis]] = field(default_factory=list)
    """The number of pieces that each lacks, which is 0 unless it had to end, and the hypothesis."""

    def best(self, n: int) -> list[Hypothesis]:
        """The n best hypotheses of those that lack the fewest pieces."""
        fewest = min((number for number, _ in self.ended), default=0)
        return nlargest(n, (hypothesis for number, hypothesis in self.ended if number == fewest), key=search.BY_SCORE)


@torch.inference_mode()
def constrained_search(
    model: Seq2Seq,
    source_BS: Tensor,
    constraints: Constraints,
    decoding: DecodingConfig,
    phrases: Sequence[Sequence[Sequence[Sequence[int]]]],
    ends_word: Sequence[bool],
) -> list[list[Hypothesis]]:
    """`beam_search` whose hypotheses have all phrases of their sentence, as whole words that do not overlap.

    Only at its greatest length, or if no other piece is allowed, a hypothesis may end without some of them.
    `ends_word` has the result of the function for each piece of the vocabulary.
    """
    begun = [Progress.at_first(of_one) for of_one in phrases]
    all_rows = rows = [_Row(number, [one], decoding.beam_size + one.num_lacking) for number, one in enumerate(begun)]
    first_AW1, log_prob_AW = source_BS[:, :1, None], torch.zeros_like(source_BS[:, :1], dtype=torch.float32)
    beam = search.Beam(torch.full_like(first_AW1, BOS), log_prob_AW, model.start(source_BS, width=1))
    for length in range(1, max(constraints.max_length, default=0) + 1):
        # Continue each hypothesis by one word.
        log_probs_AWV, state = search.log_probs(model, beam, constraints, [row.number for row in rows], length)
        more = _more_candidates(log_probs_AWV, beam.log_prob_AW, rows)
        best = model.faster(search.best_continuations)(log_probs_AWV, beam.log_prob_AW, 2 * decoding.beam_size)
        del log_probs_AWV
        *columns, past_AWT = on_host(*best, beam.tokens_AWT)

        # Collect the hypotheses that end now, and choose those that stay alive.
        for at, (row, *numbers) in enumerate(zip(rows, *(x_AC.tolist() for x_AC in columns), strict=True)):
            if row.living:
                candidates = [*zip(*numbers, strict=True), *more[at]]
                _choose(candidates, row, past_AWT[at], constraints.max_length[row.number], decoding, ends_word)

        # Make the next beam of them, and drop the sentences that are done.
        searched = [at for at, row in enumerate(rows) if row.living]
        if not searched:
            break
        beam = search.next_beam([row.living for row in rows], beam.tokens_AWT, state)
        if len(searched) <= search.KEEP_ABOVE * len(rows):
            kept = on_device(searched, source_BS.device)
            beam = search.Beam(beam.tokens_AWT[kept], beam.log_prob_AW[kept], beam.state.keep(kept))
            rows = [rows[at] for at in searched]
    return [row.best(decoding.n_best) for row in all_rows]


def _more_candidates(log_probs_AWV: Tensor, log_prob_AW: Tensor, rows: Sequence[_Row]) -> list[list[search.Candidate]]:
    """Continuations of the hypotheses of each row that may be important although they are improbable.

    These are the best of each hypothesis, its end, and those that go on with a phrase. Hypotheses without all phrases
    cannot end unless nothing else is left: this sets EOS to -inf, in place.
    """
    found: list[list[search.Candidate]] = [[] for _ in rows]
    alive = [(at, w, row.progress[w]) for at, row in enumerate(rows) for w in range(len(row.living))]
    device = log_probs_AWV.device
    row_N, w_N = on_device([at for at, *_ in alive], device), on_device([w for _, w, _ in alive], device)
    lacks_N = on_device([one.num_lacking > 0 for *_, one in alive], device)
    next_M = [(n, piece) for n, (*_, one) in enumerate(alive) for piece in (EOS, *one.next_pieces)]
    number_M, piece_M = (on_device(x, device) for x in zip(*next_M, strict=True))

    own_NV, sum_N = log_probs_AWV[row_N, w_N], log_prob_AW[row_N, w_N]
    end_N = own_NV[:, EOS].clone()
    own_NV[:, EOS].masked_fill_(lacks_N, -math.inf)
    own_NV[:, EOS] = torch.where(own_NV.amax(dim=-1) == -math.inf, end_N, own_NV[:, EOS])
    log_probs_AWV[row_N, w_N, EOS] = own_NV[:, EOS]
    best_N, best_piece_N = own_NV.max(dim=-1)
    sums = torch.cat([sum_N + best_N, sum_N[number_M] + own_NV[number_M, piece_M]])
    pieces = torch.cat([best_piece_N, piece_M])
    numbers = [*range(len(alive)), *(n for n, _ in next_M)]
    for n, log_prob, piece in zip(numbers, *(x.tolist() for x in on_host(sums, pieces)), strict=True):
        at, w, _ = alive[n]
        found[at].append((log_prob, w, piece))
    return found


def _choose(
    candidates: Sequence[search.Candidate],
    row: _Row,
    past_WT: Tensor,
    max_length: int,
    decoding: DecodingConfig,
    ends_word: Sequence[bool],
) -> None:
    """Collect the hypotheses of a row that end now, and choose those that stay alive.

    A hypothesis with all phrases may end if it is among the best W of its bank. The sentence is done when `patience`
    times W hypotheses have ended and no other has a better score at its present length, or when no other can become one
    of the `n_best`. If its numbers are not finite, it has none.
    """
    if math.isnan(candidates[0][0]):
        row.ended, row.living = [], []
        return
    others = list[tuple[search.Candidate, Progress, int]]()  # the last is the rank in the bank
    in_bank = Counter[int]()
    for log_prob, parent, piece in sorted({one for one in candidates if one[0] > -math.inf}, reverse=True):
        before = row.progress[parent]
        after = before if piece == EOS else before.after(piece, ends_word=ends_word[piece])
        bank = after.num_lacking
        in_bank[bank] += 1
        if piece != EOS:
            others.append(((log_prob, parent, piece), after, in_bank[bank]))
        elif bank or in_bank[bank] <= decoding.beam_size:
            row.ended.append((bank, search.scored([*past_WT[parent, 1:].tolist(), EOS], log_prob, decoding)))

    best, finished = row.best(decoding.n_best), sum(bank == 0 for bank, _ in row.ended)
    to_beat = best[-1].score if finished >= decoding.n_best else -math.inf
    is_enough = decoding.patience and finished >= max(decoding.n_best, decoding.patience * decoding.beam_size)
    length = past_WT.shape[-1] if is_enough else max_length
    penalty = length_penalty(length, decoding.length_penalty, decoding.length_penalty_form)
    # The best of each bank, then the second of each, and so on. So at each position, one comes closer to all phrases.
    others.sort(key=lambda other: other[2])
    kept = [other for other in others[: row.width] if other[0][0] / penalty > to_beat]
    row.living, row.progress = [candidate for candidate, *_ in kept], [progress for _, progress, _ in kept]
