"""What a translation's score has besides its probability: penalties for its length, and for what it leaves out.

    score = log_prob / length_penalty + coverage_penalty          (Wu et al. 2016, eq. 14)

Imports no PyTorch. S source positions  T target positions
"""

import math
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # engines without PyTorch score their translations too
    from torch import Tensor

LengthPenaltyForm = Literal["gnmt", "average", "none"]

LEAST_COVERAGE = 1e-12  # of a source position that got no attention, so that its logarithm is finite
TYPICAL_LENGTH = 25  # pieces of a translation


def length_penalty(length: int, alpha: float, form: LengthPenaltyForm = "gnmt") -> float:
    """The divisor of the log-probability of a translation that has `length` pieces, EOS included.

    gnmt: ((5 + length) / 6) ** alpha; average: length ** alpha; none: 1.
    """
    match form:
        case "gnmt":
            return float(((5 + length) / 6) ** alpha)
        case "average":
            return float(length**alpha)
        case "none":
            return 1.0


def power_of_length(alpha: float, form: LengthPenaltyForm, length: int = TYPICAL_LENGTH) -> float:
    """The p for which length ** p grows as fast as the length penalty does, at translations of `length` pieces.

    For programs whose only length penalty is a power of the length.
    """
    growth = length_penalty(length + 1, alpha, form) / length_penalty(length, alpha, form)
    return math.log(growth) / math.log((length + 1) / length)


def coverage_penalty(attention_TS: "Tensor", beta: float) -> float:
    """A number to add to the score of a translation: 0, and less for each source position that got little attention.

    beta times the sum over source positions of log(min(attention received, 1)). Row t of `attention_TS` is the
    attention of target piece t; there is no padding.
    """
    received_S = attention_TS.float().sum(dim=0).clamp(LEAST_COVERAGE, 1.0)
    return beta * float(received_S.log().sum())
