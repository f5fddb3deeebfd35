"""Constraints: which pieces may come next in a hypothesis, whatever their probability.

A sentences still searched  W hypotheses of a sentence  T positions  V vocabulary
F sentences whose next piece is forced  G sequences of n pieces  m = n - 1
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from transformer_mt.decoding.utf8 import LONGEST, Utf8
from transformer_mt.device import on_device
from transformer_mt.vocabulary import BOS, EOS, PAD


@dataclass(frozen=True)
class Constraints:
    """The constraints on the translations of a batch. If two contradict each other, the one listed first here holds."""

    max_length: list[int]
    """The most pieces, EOS included, that the translation of each sentence may have. At that length it must end."""
    prefixes: list[list[int]] = field(default_factory=list)
    """The pieces that the translation of each sentence must begin with, without EOS. An empty list if none has any."""
    no_repeat_ngram: int = 0
    """No sequence of this many pieces occurs twice, except in a prefix. If no piece is left, EOS may come. 0: off."""
    min_length: int = 0
    """The fewest pieces of a translation, EOS not included."""
    utf8: Utf8 | None = None
    """The pieces of bytes spell characters, and each character is finished within max_length. None: no piece is a byte.

    This holds before no_repeat_ngram: the bytes that finish a character may come whatever came before.
    """

    def forbid_(self, scores_AWV: Tensor, tokens_AWT: Tensor, sentences: list[int], length: int) -> None:
        """Set the scores of forbidden pieces to -inf, in place. The next piece has number `length`, counted from 1.

        Scores are logits or log-probabilities. `sentences` are the numbers of the A sentences in the batch. tokens_AWT
        holds BOS and the pieces of the hypotheses so far; it is read only for no_repeat_ngram and utf8.
        """
        forced = self._forced(sentences, length)
        if forced:
            rows_F = on_device(list(forced), scores_AWV.device)
            pieces_F = on_device(list(forced.values()), scores_AWV.device)
            forced_FW = scores_AWV[rows_F, :, pieces_F]
        end_AW = scores_AWV[..., EOS].clone() if 0 < self.no_repeat_ngram < length else None

        scores_AWV[..., PAD] = -math.inf
        scores_AWV[..., BOS] = -math.inf
        if length <= self.min_length:
            scores_AWV[..., EOS] = -math.inf
        is_inside_AW = self._forbid_no_characters(scores_AWV, tokens_AWT, sentences, length)
        if end_AW is not None:
            _forbid_repetition(scores_AWV, tokens_AWT[..., 1:], self.no_repeat_ngram, is_inside_AW)
            nothing_AW = scores_AWV.amax(dim=-1) == -math.inf
            scores_AWV[..., EOS] = torch.where(nothing_AW, end_AW, scores_AWV[..., EOS])
        if forced:
            scores_AWV.index_fill_(0, rows_F, -math.inf)
            scores_AWV[rows_F, :, pieces_F] = forced_FW

    def _forbid_no_characters(
        self, scores_AWV: Tensor, tokens_AWT: Tensor, sentences: list[int], length: int
    ) -> Tensor | None:
        """Forbid what spells no character. Returns which hypotheses, AW, end inside one; None if none does."""
        if self.utf8 is None:
            return None
        for room in range(LONGEST - 1):  # bytes that may follow this one, before EOS must come
            longest = length + room + 1
            if longest in self._max_lengths:
                rows = [row for row, sentence in enumerate(sentences) if self.max_length[sentence] == longest]
                self.utf8.forbid_long_(scores_AWV, rows, room)
        return self.utf8.forbid_(scores_AWV, tokens_AWT)

    def _forced(self, sentences: list[int], length: int) -> dict[int, int]:
        """The rows whose next piece is forced, each with that piece."""
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


def max_lengths(source_BS: Tensor, max_extra_length: int, max_positions: int) -> list[int]:
    """How many tokens each translation may have, EOS included: `max_extra_length` more than its source."""
    return [min(length + max_extra_length, max_positions) for length in (source_BS != PAD).sum(dim=1).tolist()]


def _forbid_repetition(scores_AWV: Tensor, words_AWT: Tensor, n: int, is_exempt_AW: Tensor | None) -> None:
    """Set a piece to -inf if it would complete a sequence of n pieces that the hypothesis already has."""
    sequences_AWGn = words_AWT.unfold(dimension=-1, size=n, step=1)
    newest_AW1m = words_AWT[:, :, None, words_AWT.shape[-1] - (n - 1) :]
    repeated_AWG = (sequences_AWGn[..., :-1] == newest_AW1m).all(dim=-1)
    if is_exempt_AW is not None:
        repeated_AWG &= ~is_exempt_AW[..., None]
    forbidden_AWG = torch.zeros_like(repeated_AWG, dtype=scores_AWV.dtype).masked_fill_(repeated_AWG, -math.inf)
    scores_AWV.scatter_add_(-1, sequences_AWGn[..., -1], forbidden_AWG)
