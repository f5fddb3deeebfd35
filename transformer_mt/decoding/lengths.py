"""The length penalty, by which the log-probability of a translation is divided. Imports no PyTorch."""

from typing import Literal

LengthPenaltyForm = Literal["gnmt", "average", "none"]


def length_penalty(length: int, alpha: float, form: LengthPenaltyForm = "gnmt") -> float:
    """The divisor for a translation of `length` pieces, EOS included.

    gnmt: ((5 + length) / 6) ** alpha (Wu et al. 2016, eq. 14); average: length ** alpha; none: 1.
    """
    match form:
        case "gnmt":
            return float(((5 + length) / 6) ** alpha)
        case "average":
            return float(length**alpha)
        case "none":
            return 1.0
