"""Chooses translations from n-best lists by a weighted sum of log-probabilities.

With that of a model of the other direction, this is noisy channel reranking (Yee et al. 2019).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformer_mt.errors import ConfigError
from transformer_mt.wording import cut


@dataclass(frozen=True)
class Candidate:
    """A translation of a line, with what it is chosen by."""

    text: str
    length: int
    """Its pieces, with the end of the sentence."""
    log_probs: Mapping[str, float]
    """Log-probabilities, or other scores, by their names."""


@dataclass(frozen=True)
class Weights:
    """What a log-probability of each name counts, and the exponent of the length."""

    of: Mapping[str, float]
    length_penalty: float = 1.0

    @classmethod
    def read(cls, settings: Sequence[str]) -> "Weights":
        """Read settings such as channel=0.5 and length_penalty=1; log_prob=1 unless given.

        Raises ConfigError for one of another form, or a name that comes twice.
        """
        found = {"log_prob": 1.0, "length_penalty": 1.0}
        given: set[str] = set()
        for setting in settings:
            name, _, written = setting.partition("=")
            try:
                value = float(written)
            except ValueError:
                value = math.nan
            if not name or not math.isfinite(value) or name in given:
                said = "comes twice" if name in given else "is not of the form NAME=NUMBER, as in channel=0.5"
                raise ConfigError(f"{cut(setting)}: {said}")
            found[name] = value
            given.add(name)
        length_penalty = found.pop("length_penalty")
        return cls(found, length_penalty)

    def score(self, candidate: Candidate) -> float:
        """Return sum of weight * log-probability, divided by length ** length_penalty; NaN if no float can hold it."""
        total = sum(weight * candidate.log_probs[name] for name, weight in self.of.items())
        try:
            score = total / math.pow(candidate.length, self.length_penalty)
        except (OverflowError, ZeroDivisionError):
            return math.nan
        return score if math.isfinite(score) else math.nan

    def best(self, candidates: Sequence[Candidate], place: str) -> Candidate:
        """Return the candidate with the highest score; of equal ones the first.

        Raises ConfigError, which names the place of the candidates, if a score is not finite.
        """
        scores = [self.score(candidate) for candidate in candidates]
        if any(map(math.isnan, scores)):
            given = {**self.of, "length_penalty": self.length_penalty}
            raise ConfigError(
                f"{place}: with {' '.join(f'{name}={value:g}' for name, value in given.items())}, a translation has a "
                "score that is not finite: give weights and a length penalty that are nearer to 1"
            )
        return candidates[scores.index(max(scores))]
