"""Embeddings turn words into vectors, and features into logits of words (Vaswani et al. 2017, sec. 3.4).

D model width  V vocabulary
"""

from typing import Literal

from torch import nn


def embedding(vocab_size: int, d_model: int) -> nn.Embedding:
    """Drawn with standard deviation d_model ** -0.5: inputs (times sqrt(d_model), sec. 3.4) and logits have scale 1."""
    made = nn.Embedding(vocab_size, d_model)
    nn.init.normal_(made.weight, std=d_model**-0.5)
    return made


def embeddings(
    ties: Literal["all", "target", "none"], d_model: int, source_vocab_size: int, target_vocab_size: int
) -> tuple[nn.Embedding, nn.Embedding, nn.Embedding]:
    """The embeddings of target, source and output, in this order; tied ones are the same matrix, VD."""
    target = embedding(target_vocab_size, d_model)
    if ties == "all":
        assert source_vocab_size == target_vocab_size, "one matrix needs one vocabulary"
    source = target if ties == "all" else embedding(source_vocab_size, d_model)
    output = embedding(target_vocab_size, d_model) if ties == "none" else target
    return target, source, output
