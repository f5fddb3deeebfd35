"""Tries settings of decoding on the validation set, and takes those that score best there."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal

from transformer_mt.errors import ConfigError
from transformer_mt.evaluation.metrics import bleu, chrf
from transformer_mt.settings.decoding import DecodingConfig

TuneMetric = Literal["bleu", "chrf"]
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


def choices_of(keys: Sequence[str]) -> list[list[str]]:
    """Return all combinations of values such as length_penalty=0.2,0.6 and beam_size=4,8.

    Raises ConfigError if a key is not of that form, comes twice, or if there are too many combinations.
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
    if len(found) > MOST_TRIALS:
        raise ConfigError(
            f"--tune asks for {len(found):,} translations of the validation set; give fewer values, for at most "
            f"{MOST_TRIALS}"
        )
    return found


def tune(
    choices: Sequence[tuple[list[str], DecodingConfig]],
    translate: Callable[[DecodingConfig], list[str]],
    references: Sequence[str],
    metric: TuneMetric,
    target_language: str,
    tell: Callable[[Trial], None],
) -> Tuned:
    """Translate the validation set with each of these settings, and score it; `tell` is called after each."""
    trials = []
    for settings, decoding in choices:
        hypotheses = translate(decoding)
        score = bleu(hypotheses, references, target_language) if metric == "bleu" else chrf(hypotheses, references)
        trials.append(Trial(settings, score))
        tell(trials[-1])
    return Tuned(metric, len(references), trials)
