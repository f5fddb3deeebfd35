"""What a score has besides probability: the length of a translation, and what it leaves out. Imports no PyTorch.

S source positions  T target positions
"""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # engines without PyTorch score their translations too
    from torch import Tensor

LengthPenaltyForm = Literal["gnmt", "average", "none"]

LEAST_COVERAGE = 1e-12  # of a source position at which nothing looked: its logarithm stays finite


def length_penalty(length: int, alpha: float, form: LengthPenaltyForm = "gnmt") -> float:
    """What the log-probability of a translation of `length` pieces, its EOS counted, is divided by.

    gnmt: ((5 + length) / 6) ** alpha (Wu et al. 2016, eq. 14); average: length ** alpha; none: 1.
    """
    match form:
        case "gnmt":
            return float(((5 + length) / 6) ** alpha)
        case "average":
            return float(length**alpha)
        case "none":
            return 1.0


def coverage_penalty(attention_TS: "Tensor", beta: float) -> float:
    """What is added to the score of a translation: 0, or less for each source position it hardly looked at.

    beta times the sum over source positions of log(min(attention received, 1)) (Wu et al. 2016, eq. 14). Row t
    is where target piece t looked; no padding.
    """
    received_S = attention_TS.float().sum(dim=0).clamp(LEAST_COVERAGE, 1.0)
    return beta * float(received_S.log().sum())
