"""A finished translation, and its score: its log-probability and a penalty for its length."""

from dataclasses import dataclass
from typing import Literal

LengthPenaltyForm = Literal["gnmt", "average", "none"]


def length_penalty(length: int, alpha: float, form: LengthPenaltyForm = "gnmt") -> float:
    """The divisor of the log-probability of a translation of `length` pieces, EOS included.

    gnmt: ((5 + length) / 6) ** alpha (Wu et al. 2016, eq. 14); average: length ** alpha; none: 1.
    """
    match form:
        case "gnmt":
            return float(((5 + length) / 6) ** alpha)
        case "average":
            return float(length**alpha)
        case "none":
            return 1.0


@dataclass(frozen=True)
class Hypothesis:
    """A translation that a search has found."""

    tokens: list[int]
    """The ids of its pieces, without BOS, ending in EOS."""
    log_prob: float
    """The sum of the log-probabilities of all its tokens, EOS included, in nats."""
    score: float
    """Hypotheses are ranked by it: log_prob divided by the length penalty, plus a coverage penalty."""
    alignment: list[int] | None = None
    """For each token except EOS, the source position, except EOS, to which it attends most.

    None if the caller did not ask for it, or if the source has no pieces before its EOS.
    """
