"""What a search has found, and how other programs and coverage change its score. Imports no PyTorch.

S source positions  T target positions
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformer_mt.decoding.lengths import LengthPenaltyForm, length_penalty

if TYPE_CHECKING:  # engines without PyTorch score their translations too
    from torch import Tensor

LEAST_COVERAGE = 1e-12  # of a source position that got no attention, so that its logarithm is finite
TYPICAL_LENGTH = 25  # pieces of a translation


@dataclass(frozen=True)
class Hypothesis:
    """A translation that a search has found."""

    tokens: list[int]
    """The ids of its pieces, without BOS, ending in EOS."""
    log_prob: float
    """The sum of the log-probabilities of all its tokens, EOS included, in nats."""
    score: float
    """What hypotheses are ranked by: log_prob divided by the length penalty, plus a coverage penalty."""
    alignment: list[int] | None = None
    """For each token except EOS, the source position that got most of its attention; EOS of the source does not count.

    None if not asked for, or if the source has no pieces before its EOS.
    """


def coverage_penalty(attention_TS: "Tensor", beta: float) -> float:
    """To be added to a translation's score: 0, and less for each source position that got little attention.

    beta times the sum over source positions of log(min(attention received, 1)) (Wu et al. 2016, eq. 14). Row t of
    `attention_TS` is the attention of target piece t; there is no padding.
    """
    received_S = attention_TS.float().sum(dim=0).clamp(LEAST_COVERAGE, 1.0)
    return beta * float(received_S.log().sum())


def power_of_length(alpha: float, form: LengthPenaltyForm, length: int = TYPICAL_LENGTH) -> float:
    """The p for which length ** p grows as fast as the length penalty does, at translations of `length` pieces.

    For programs whose only length penalty is a power of the length.
    """
    growth = length_penalty(length + 1, alpha, form) / length_penalty(length, alpha, form)
    return math.log(growth) / math.log((length + 1) / length)
