"""Padded rows, packed end to end."""

import torch

from transformer_mt.base.languages import PAD
from transformer_mt.models.layouts import Packed

MAX_LENGTH = 40


def pack(tokens_BT, dummies=(3, 1), repeats=4):
    """The rows end to end without their padding, then dummies of these lengths, then the end once more and again."""
    sentences = [row[row != PAD].tolist() for row in tokens_BT]
    tokens, offsets, positions = [], [0], []
    for sentence in sentences + [[PAD] * length for length in dummies]:
        tokens += sentence
        positions += range(len(sentence))
        offsets.append(len(tokens))
    offsets += [len(tokens)] * repeats
    return Packed(torch.tensor(tokens), torch.tensor(offsets, dtype=torch.int32), torch.tensor(positions), MAX_LENGTH)
