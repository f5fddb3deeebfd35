"""Tries settings of decoding on the validation set, and takes those that score best there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from transformer_mt.base.errors import ConfigError
from transformer_mt.evaluation.metrics import MetricName, corpus_score

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Trial:
    """A choice of settings, and its score on the validation set in percent."""

    settings: list[str]
    """As they are written on the command line: length_penalty=0.6."""
    score: float


@dataclass(frozen=True)
class Tuning:
    """All that was tried on a validation set of num_lines lines, and the settings that were best."""

    metric: MetricName
    num_lines: int
    trials: list[Trial]
    chosen: list[str]

    @property
    def best(self) -> int:
        """The number of the trial with the highest score, from 0; of equal ones the first."""
        return [trial.settings for trial in self.trials].index(self.chosen)


def choices_of(keys: Sequence[str]) -> list[list[str]]:
    """Return all combinations of values such as length_penalty=0.2,0.6 and beam_size=4,8.

    Raises ConfigError if a key is not of that form, or comes twice.
    """
    values: dict[str, list[str]] = {}
    for key in keys:
        name, _, listed = key.partition("=")
        if not name or not all(listed.split(",")):
            raise ConfigError(f"--tune {key}: write values between commas, as in length_penalty=0.2,0.6,1.0")
        if name in values:
            raise ConfigError(f"--tune has {name} twice: give all of its values at once, between commas")
        values[name] = [f"{name}={value}" for value in listed.split(",")]
    return [list(choice) for choice in product(*values.values())]


def tune(
    choices: Sequence[tuple[list[str], Choice]],
    translate: Callable[[Choice], list[str]],
    references: Sequence[str],
    metric: MetricName,
    target_language: str,
) -> Tuning:
    """Score the validation set, which `translate` translates by each choice, and print each score.

    A choice has its settings as they are written on the command line, and what `translate` takes.
    """
    trials = []
    for settings, choice in choices:
        hypotheses = translate(choice)
        trials.append(Trial(settings, corpus_score(metric, hypotheses, references, target_language)))
        print(f"validation set  {metric} {trials[-1].score:5.2f}  {' '.join(settings)}", flush=True)
    return Tuning(metric, len(references), trials, max(trials, key=lambda trial: trial.score).settings)
