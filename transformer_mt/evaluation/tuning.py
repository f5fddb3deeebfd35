"""Tries settings of decoding on the validation set, and takes those that score best there."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal, TypeVar

from transformer_mt.errors import ConfigError
from transformer_mt.evaluation.metrics import bleu, chrf

TuneMetric = Literal["bleu", "chrf"]
Choice = TypeVar("Choice")
MOST_TRIALS = 200


@dataclass(frozen=True)
class Trial:
    """A choice of settings, and its score on the validation set in percent."""

    settings: list[str]
    """As they are written on the command line: length_penalty=0.6."""
    score: float


@dataclass(frozen=True)
class Tuned:
    """All that was tried, and what was best."""

    metric: TuneMetric
    num_lines: int
    trials: list[Trial]

    @property
    def best(self) -> Trial:
        """The trial with the highest score; of equal ones the first."""
        return max(self.trials, key=lambda trial: trial.score)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"chosen": self.best.settings}


def choices_of(keys: Sequence[str], most: int = MOST_TRIALS) -> list[list[str]]:
    """Return all combinations of values such as length_penalty=0.2,0.6 and beam_size=4,8.

    Raises ConfigError if a key is not of that form, comes twice, or if there are more than `most` combinations.
    """
    values: list[list[str]] = []
    names: list[str] = []
    for key in keys:
        name, equals, listed = key.partition("=")
        if not equals or not name or not all(listed.split(",")):
            raise ConfigError(f"--tune {key}: write values between commas, as in length_penalty=0.2,0.6,1.0")
        if name in names:
            raise ConfigError(f"--tune has {name} twice: give all of its values at once, between commas")
        names.append(name)
        values.append([f"{name}={value}" for value in listed.split(",")])
    found = [list(choice) for choice in product(*values)]
    if len(found) > most:
        raise ConfigError(
            f"--tune asks for {len(found):,} translations of the validation set; give fewer values, for at "
            f"most {most:,}"
        )
    return found


def tune(
    choices: Sequence[tuple[list[str], Choice]],
    translate: Callable[[Choice], list[str]],
    references: Sequence[str],
    metric: TuneMetric,
    target_language: str,
    tell: Callable[[Trial], None],
) -> Tuned:
    """Score the validation set, which `translate` translates by each choice; `tell` is called after each.

    A choice has its settings as they are written on the command line, and what `translate` takes.
    """
    trials = []
    for settings, choice in choices:
        hypotheses = translate(choice)
        score = bleu(hypotheses, references, target_language) if metric == "bleu" else chrf(hypotheses, references)
        trials.append(Trial(settings, score))
        tell(trials[-1])
    return Tuned(metric, len(references), trials)
