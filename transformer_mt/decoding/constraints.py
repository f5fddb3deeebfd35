"""Which pieces may come next in a hypothesis, whatever their probability.

A sentences still searched  W hypotheses of a sentence  T positions  V vocabulary
F sentences of which one piece alone may come next  G sequences of n pieces  m = n - 1
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from transformer_mt.vocabulary import BOS, EOS, PAD


@dataclass(frozen=True)
class Constraints:
    """Of a batch of sentences. Where two of them contradict each other, the upper one here goes first."""

    max_length: list[int]
    """Of each sentence: how many pieces its translation may have, EOS included. There it has to end."""
    prefixes: list[list[int]] = field(default_factory=list)
    """Of each sentence: what its translation has to begin with; no EOS. Or none of any."""
    no_repeat_ngram: int = 0
    """No sequence of so many pieces comes twice, but within a prefix; where no piece is left, EOS may come.
    0 lets them."""
    min_length: int = 0
    """How many pieces a translation has at least, EOS not included."""

    def forbid_(self, scores_AWV: Tensor, tokens_AWT: Tensor, sentences: list[int], length: int) -> None:
        """Write -inf in place where a piece may not be the `length`th of its hypothesis, counted from 1.

        Scores are logits or log-probabilities; `sentences` are the numbers of the A sentences in the batch;
        tokens_AWT is BOS and what the hypotheses hold, and is read only if there is a no_repeat_ngram.
        """
        forced = self._forced(sentences, length)
        if forced:
            rows_F = torch.tensor(list(forced), device=scores_AWV.device)
            pieces_F = torch.tensor(list(forced.values()), device=scores_AWV.device)
            forced_FW = scores_AWV[rows_F, :, pieces_F]
        end_AW = scores_AWV[..., EOS].clone() if 0 < self.no_repeat_ngram < length else None

        scores_AWV[..., PAD] = -math.inf
        scores_AWV[..., BOS] = -math.inf
        if length <= self.min_length:
            scores_AWV[..., EOS] = -math.inf
        if end_AW is not None:
            _forbid_repetition(scores_AWV, tokens_AWT[..., 1:], self.no_repeat_ngram)
            nothing_AW = scores_AWV.amax(dim=-1) == -math.inf
            scores_AWV[..., EOS] = torch.where(nothing_AW, end_AW, scores_AWV[..., EOS])
        if forced:
            scores_AWV[rows_F] = -math.inf
            scores_AWV[rows_F, :, pieces_F] = forced_FW

    def _forced(self, sentences: list[int], length: int) -> dict[int, int]:
        """The one piece that may come next, by row of the batch, where there is but one."""
        if length > self._longest_prefix and length not in self._max_lengths:
            return {}
        forced = {}
        for row, sentence in enumerate(sentences):
            if length == self.max_length[sentence]:
                forced[row] = EOS
            elif self.prefixes and length <= len(self.prefixes[sentence]):
                forced[row] = self.prefixes[sentence][length - 1]
        return forced

    @cached_property
    def _longest_prefix(self) -> int:
        return max(map(len, self.prefixes), default=0)

    @cached_property
    def _max_lengths(self) -> set[int]:
        return set(self.max_length)


def _forbid_repetition(scores_AWV: Tensor, words_AWT: Tensor, n: int) -> None:
    """-inf for each piece that would make the last n pieces a sequence which the hypothesis already holds."""
    sequences_AWGn = words_AWT.unfold(dimension=-1, size=n, step=1)
    newest_AW1m = words_AWT[:, :, None, words_AWT.shape[-1] - (n - 1) :]
    repeated_AWG = (sequences_AWGn[..., :-1] == newest_AW1m).all(dim=-1)
    forbidden_AWG = torch.zeros_like(repeated_AWG, dtype=scores_AWV.dtype).masked_fill_(repeated_AWG, -math.inf)
    scores_AWV.scatter_add_(-1, sequences_AWGn[..., -1], forbidden_AWG)
