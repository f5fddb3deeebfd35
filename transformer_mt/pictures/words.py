"""Joins the subword pieces of a sentence to words, and their attention weights to weights between words.

H heads  T rows  S columns, both of pieces  N rows  M columns, both of words
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transformer_mt.decoding.words import WORD, text_of, written_together
from transformer_mt.models.attention_weights import FloatArray


@dataclass(frozen=True)
class Word:
    """A word, or a sign before or behind it, or the begin or end of a sentence."""

    text: str
    pieces: list[int]
    """The numbers of its pieces in the sentence, from 0."""


def words_of_pieces(pieces: Sequence[str], spaced: bool, *, begins: bool = False, ends: bool = False) -> list[Word]:
    """The words of a sentence. Signs of punctuation around a word are words of their own.

    `begins` and `ends` say whether the first piece is the begin of a sentence and the last piece its end: these are
    words of their own, too. In a language without spaces, each piece is a word.
    """
    first, last = int(begins), len(pieces) - int(ends)
    groups = [[first + number for number in group] for group in written_together(pieces[first:last], spaced)]
    if spaced:
        groups = [part for group in groups for part in _without_signs(group, pieces)]
    if begins:
        groups = [[0], *groups]
    if ends:
        groups = [*groups, [last]]
    return [Word(_text([pieces[number] for number in group]), group) for group in groups]


def joined(weights_HTS: FloatArray, rows: Sequence[Word], columns: Sequence[Word]) -> FloatArray:
    """HNM: how much each word looked at each word.

    What a piece gives to a word is the sum of what it gives to the pieces of that word; what a word gives is the mean
    of what its own pieces give. So rows that sum to 1 still do.
    """
    given_HTM = np.stack([weights_HTS[:, :, word.pieces].sum(axis=2) for word in columns], axis=2)
    return np.stack([given_HTM[:, word.pieces].mean(axis=1) for word in rows], axis=1)


def _without_signs(group: list[int], pieces: Sequence[str]) -> list[list[int]]:
    """Part the pieces of a word from the signs of punctuation that stand before and behind it."""
    parts = [[number] for number in group]
    if pieces[group[0]] == WORD and len(group) > 1:  # a space that is a piece belongs to the next one
        parts[:2] = [group[:2]]
    letters = [at for at, part in enumerate(parts) if not _is_sign("".join(pieces[number] for number in part))]
    if letters:
        first, last = letters[0], letters[-1] + 1
        parts[first:last] = [[number for part in parts[first:last] for number in part]]
    return parts


def _is_sign(pieces: str) -> bool:
    text = text_of([pieces])
    return bool(text) and all(unicodedata.category(character).startswith("P") for character in text)


def _text(pieces: Sequence[str]) -> str:
    return text_of(pieces) or "".join(pieces)
