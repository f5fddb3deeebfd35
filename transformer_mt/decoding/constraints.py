"""Says which pieces may come next in a hypothesis, regardless of their probability.

A sentences still searched  B sentences  W hypotheses of a sentence  T positions  V vocabulary  R rows  L pieces
N hypotheses that end inside a character  F sentences with a forced next piece  G sequences of n pieces  m = n - 1
K pieces of protected texts  S states: the bytes that a character still lacks; state 0 lacks none
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from transformer_mt.base.languages import BOS, EOS, KEEP, PAD
from transformer_mt.decoding.word_pieces import byte_of
from transformer_mt.kernels.device import on_device

Rest = tuple[range, ...]
"""The bytes that a character still lacks: for each of them, its possible values."""

LONGEST = 4  # the most bytes of a character
_ANY = range(0x80, 0xC0)
# The first byte of a character and those that follow it: table 3-7 of the Unicode Standard, version 16.
_CHARACTERS: list[tuple[range, Rest]] = [
    (range(0x00, 0x80), ()),
    (range(0xC2, 0xE0), (_ANY,)),
    (range(0xE0, 0xE1), (range(0xA0, 0xC0), _ANY)),
    (range(0xE1, 0xED), (_ANY, _ANY)),
    (range(0xED, 0xEE), (range(0x80, 0xA0), _ANY)),
    (range(0xEE, 0xF0), (_ANY, _ANY)),
    (range(0xF0, 0xF1), (range(0x90, 0xC0), _ANY, _ANY)),
    (range(0xF1, 0xF4), (_ANY, _ANY, _ANY)),
    (range(0xF4, 0xF5), (range(0x80, 0x90), _ANY, _ANY)),
]
_STATES: list[Rest] = list(dict.fromkeys(rest[i:] for _, rest in _CHARACTERS for i in range(len(rest), -1, -1)))


class Utf8:
    """The pieces of a vocabulary that may follow a hypothesis whose bytes are UTF-8 so far."""

    def __init__(self, byte_of_piece: Mapping[int, int], vocab_size: int, device: torch.device) -> None:
        """`byte_of_piece` has the byte of each piece that is a byte, such as <0x0A>."""
        next_SV = torch.zeros(len(_STATES), vocab_size, dtype=torch.int64)
        is_forbidden_SV = torch.zeros(len(_STATES), vocab_size, dtype=torch.bool)
        is_forbidden_SV[1:] = True  # for pieces that are not bytes
        state_of = {rest: state for state, rest in enumerate(_STATES)}
        for piece, byte in byte_of_piece.items():
            first = _after((), byte)
            for rest, state in state_of.items():
                after = _after(rest, byte)
                is_forbidden_SV[state, piece] = after is None
                # A byte that may not follow leads to the same state as after a complete character, or to state 0.
                next_SV[state, piece] = state_of[first or () if after is None else after]
        self.next_SV, self.is_forbidden_SV = next_SV.to(device), is_forbidden_SV.to(device)
        self.never_first_L = self.is_forbidden_SV[0].nonzero().flatten()
        self.not_ascii = {piece for piece, byte in byte_of_piece.items() if byte > 0x7F}
        lacks = {piece: len(_after((), byte) or ()) for piece, byte in byte_of_piece.items()}
        self.lacking = [[piece for piece in lacks if lacks[piece] >= number] for number in range(LONGEST)]
        """For each number: the bytes that begin a character and leave at least that many of its bytes lacking."""

    @classmethod
    def of(cls, pieces: Sequence[str], device: torch.device) -> Self | None:
        """The constraint for a vocabulary, given its pieces in the order of their ids; None if none is a byte."""
        found = {number: byte for number, piece in enumerate(pieces) if (byte := byte_of(piece)) is not None}
        return cls(found, len(pieces), device) if found else None

    def forbid_(self, scores_AWV: Tensor, tokens_AWT: Tensor) -> Tensor | None:
        """Set the scores of pieces that cannot come next to -inf, in place.

        Returns which hypotheses, AW, end inside a character; None if the host knows that none does.
        """
        # The host does not wait for a GPU to learn whether this would be enough there.
        if not scores_AWV.is_cuda and self.not_ascii.isdisjoint(tokens_AWT[..., -1].flatten().tolist()):
            scores_AWV.index_fill_(-1, self.never_first_L, -math.inf)
            return None
        state_AW = self._state(tokens_AWT)
        scores_AWV.masked_fill_(self.is_forbidden_SV[state_AW], -math.inf)
        return state_AW > 0

    def forbid_long_(self, scores_AWV: Tensor, rows: list[int], room: int) -> None:
        """Set to -inf, in these rows, the first bytes of characters that then lack more than `room` (0 to 2) bytes."""
        pieces = self.lacking[room + 1]
        if rows and pieces:
            rows_R1, pieces_L = on_device(rows, scores_AWV.device)[:, None], on_device(pieces, scores_AWV.device)
            scores_AWV[rows_R1, :, pieces_L] = scores_AWV.new_full((), -math.inf)

    def _state(self, tokens_AWT: Tensor) -> Tensor:
        """The state of each hypothesis, AW. It depends only on the last LONGEST - 1 pieces."""
        state_AW = torch.zeros_like(tokens_AWT[..., 0])
        for token_AW in tokens_AWT[..., 1 - LONGEST :].unbind(dim=-1):
            state_AW = self.next_SV[state_AW, token_AW]
        return state_AW


class Once:
    """The pieces of protected texts: a translation has each piece of its source exactly once, and no others."""

    def __init__(self, pieces: Sequence[int], device: torch.device) -> None:
        self._pieces, self.piece_K = pieces, on_device(pieces, device)

    @classmethod
    def of(cls, pieces: Sequence[str], device: torch.device) -> Self | None:
        """The constraint for a vocabulary, given its pieces in the order of their ids; None if none is of this kind."""
        found = [number for number, piece in enumerate(pieces) if piece in KEEP]
        return cls(found, device) if found else None

    def wanted(self, once: Sequence[Sequence[int]]) -> Tensor | None:
        """Which pieces each sentence must have, BK; None if no sentence must have any."""
        numbers = [[piece in of_one for piece in self._pieces] for of_one in once]
        return torch.tensor(numbers, device=self.piece_K.device) if any(once) else None

    def forbid_(
        self, scores_AWV: Tensor, tokens_AWT: Tensor, wanted_AK: Tensor, room_A: Tensor, is_inside_AW: Tensor | None
    ) -> None:
        """Set to -inf, in place, the pieces that a hypothesis has or does not need, and its end if it lacks one.

        Where it would end, or if only they fit into the `room_A` pieces, one must come, but not inside a character.
        """
        has_AWK = (tokens_AWT[..., None] == self.piece_K).any(dim=-2)
        lacks_AWK = wanted_AK[:, None] & ~has_AWK
        scores_AWK = scores_AWV[..., self.piece_K].masked_fill(~lacks_AWK, -math.inf)
        num_lacking_AW = lacks_AWK.sum(dim=-1)
        ends_AW = scores_AWV[..., EOS] >= scores_AWV.amax(dim=-1)
        must_AW = (num_lacking_AW > 0) & (ends_AW | (num_lacking_AW >= room_A[:, None]))
        if is_inside_AW is not None:
            must_AW &= ~is_inside_AW
        scores_AWV[..., EOS].masked_fill_(num_lacking_AW > 0, -math.inf)
        scores_AWV.masked_fill_(must_AW[..., None], -math.inf)
        scores_AWV.index_copy_(-1, self.piece_K, scores_AWK)


def _after(rest: Rest, byte: int) -> Rest | None:
    """The bytes that are lacking after this byte, if `rest` was lacking before it; None if it may not come there."""
    if rest:
        return rest[1:] if byte in rest[0] else None
    return next((following for first, following in _CHARACTERS if byte in first), None)


@dataclass(frozen=True)
class Constraints:
    """The constraints on the translations of a batch. If two contradict each other, the one listed first here wins."""

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

    This takes precedence over no_repeat_ngram: the bytes that finish a character are always allowed.
    """

    once: Once | None = None
    once_BK: Tensor | None = None
    """Which pieces of protected texts each sentence must have, unless max_length ends it. None: none."""

    def forbid_(self, scores_AWV: Tensor, tokens_AWT: Tensor, sentences: list[int], length: int) -> None:
        """Set the scores of forbidden pieces to -inf, in place. The next piece has number `length`, counted from 1.

        Scores are logits or log-probabilities. `sentences` are the numbers of the A sentences in the batch. tokens_AWT
        holds BOS and the pieces of the hypotheses so far; only no_repeat_ngram and utf8 read it.
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
        is_inside_AW = None  # which hypotheses end inside a character, if the host does not know that none does
        if self.utf8 is not None:
            for room in range(LONGEST - 1):  # bytes that may follow this one, before EOS must come
                longest = length + room + 1
                if longest in self._max_lengths:
                    rows = [row for row, sentence in enumerate(sentences) if self.max_length[sentence] == longest]
                    self.utf8.forbid_long_(scores_AWV, rows, room)
            is_inside_AW = self.utf8.forbid_(scores_AWV, tokens_AWT)
        if self.once is not None and self.once_BK is None:
            scores_AWV.index_fill_(-1, self.once.piece_K, -math.inf)
        elif self.once is not None and self.once_BK is not None:
            rows_A = on_device(sentences, scores_AWV.device)
            room_A = on_device([self.max_length[row] - length for row in sentences], scores_AWV.device)
            self.once.forbid_(scores_AWV, tokens_AWT, self.once_BK[rows_A], room_A, is_inside_AW)
        if end_AW is not None:
            _forbid_repetition(scores_AWV, tokens_AWT[..., 1:], self.no_repeat_ngram, is_inside_AW)
            nothing_AW = scores_AWV.amax(dim=-1) == -math.inf
            scores_AWV[..., EOS] = torch.where(nothing_AW, end_AW, scores_AWV[..., EOS])
        if forced:
            scores_AWV.index_fill_(0, rows_F, -math.inf)
            scores_AWV[rows_F, :, pieces_F] = forced_FW

    def _forced(self, sentences: list[int], length: int) -> dict[int, int]:
        """The rows that have a forced next piece, and this piece."""
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


def _forbid_repetition(scores_AWV: Tensor, words_AWT: Tensor, n: int, is_exempt_AW: Tensor | None) -> None:
    """Set a piece to -inf if it would complete a sequence of n pieces that the hypothesis already has."""
    sequences_AWGn = words_AWT.unfold(dimension=-1, size=n, step=1)
    newest_AW1m = words_AWT[:, :, None, words_AWT.shape[-1] - (n - 1) :]
    repeated_AWG = (sequences_AWGn[..., :-1] == newest_AW1m).all(dim=-1)
    if is_exempt_AW is not None:
        repeated_AWG &= ~is_exempt_AW[..., None]
    forbidden_AWG = torch.zeros_like(repeated_AWG, dtype=scores_AWV.dtype).masked_fill_(repeated_AWG, -math.inf)
    scores_AWV.scatter_add_(-1, sequences_AWGn[..., -1], forbidden_AWG)
