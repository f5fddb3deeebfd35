"""Tries settings of decoding on the validation set, and chooses those with the best score."""

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
    """In the form of the command line: length_penalty=0.6."""
    score: float


@dataclass(frozen=True)
class Tuning:
    """All trials on a validation set of num_lines lines, and the best settings."""

    metric: MetricName
    num_lines: int
    trials: list[Trial]
    chosen: list[str]

    @property
    def best(self) -> int:
        """The number, from 0, of the trial with the highest score; the first of several with the same score."""
        return [trial.settings for trial in self.trials].index(self.chosen)


def choices_of(keys: Sequence[str]) -> list[list[str]]:
    """Return all combinations of values such as beam_size=4,8. Raises ConfigError for another form, or a key twice."""
    values: dict[str, list[str]] = {}
    for key in keys:
        name, _, listed = key.partition("=")
        if not name or not all(listed.split(",")):
            raise ConfigError(f"--tune {key}: separate the values by commas, as in length_penalty=0.2,0.6,1.0")
        if name in values:
            raise ConfigError(f"--tune has {name} twice: write it once, with all values separated by commas")
        values[name] = [f"{name}={value}" for value in listed.split(",")]
    return [list(choice) for choice in product(*values.values())]


def tune(
    choices: Sequence[tuple[list[str], Choice]],
    translate: Callable[[Choice], list[str]],
    references: Sequence[str],
    metric: MetricName,
    target_language: str,
) -> Tuning:
    """Translate the validation set with each choice of settings, and print each score.

    A choice is a pair: its settings in the form of the command line, and the argument of `translate`.
    """
    trials = []
    for settings, choice in choices:
        hypotheses = translate(choice)
        trials.append(Trial(settings, corpus_score(metric, hypotheses, references, target_language)))
        print(f"validation set  {metric} {trials[-1].score:5.2f}  {' '.join(settings)}", flush=True)
    return Tuning(metric, len(references), trials, max(trials, key=lambda trial: trial.score).settings)
