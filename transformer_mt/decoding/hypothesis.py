"""What a search has found. Imports no PyTorch."""

from dataclasses import dataclass


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
