"""Scores a model several times: with each choice of settings, or on test sets in which every line is changed."""

from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from typing import TypeVar

from transformer_mt.base.errors import ConfigError, EvaluationError
from transformer_mt.base.languages import has_spaces
from transformer_mt.evaluation.evaluated_texts import TestSet
from transformer_mt.evaluation.metrics import MetricName, corpus_score, score_corpus
from transformer_mt.evaluation.scores_json import PerturbedScores, Trial, Tuning, lines_sha256
from transformer_mt.text.modifiers import Symbols, title_case, upper_case, with_typos, without_end_punct
from transformer_mt.text.tokenizer import clean

Choice = TypeVar("Choice")
_BOTH_SIDES = {"upper": upper_case, "title": title_case, "punct": without_end_punct}


def check_perturbations(names: Sequence[str], source_languages: Sequence[str]) -> None:
    """Raises EvaluationError for typos in a language without spaces between words."""
    for language in source_languages:
        if "typos" in names and not has_spaces(language):
            raise EvaluationError(f"--perturb typos: {language} has no spaces between words; leave typos out")


def perturbed(text: TestSet, name: str, symbols: Symbols) -> TestSet:
    """Return a test set with the change `name` of `evaluate --perturb` in each line that allows it.

    Typos are only in the sources, one in each, chosen by the number of the line: everybody gets the same text. The
    other changes are also in the references of the sources that change.
    """
    sources = [clean(source) for source in text.sources]
    if name == "typos":
        typos = [with_typos(source, symbols, Random(number), 0.0) for number, source in enumerate(sources, start=1)]
        return TestSet(typos, text.references)
    change = _BOTH_SIDES[name]
    changed = [change(source, symbols) for source in sources]
    references = [
        change(clean(line), symbols) if new != old else line
        for line, new, old in zip(text.references, changed, sources, strict=True)
    ]
    return TestSet(changed, references)


def perturbed_scores(text: TestSet, hypotheses: list[str], target_language: str, plain: float) -> PerturbedScores:
    """Score the translations of a changed test set. `plain` is the chrF2 of the one without the change."""
    scores = score_corpus(hypotheses, [text.references], target_language, metrics=["bleu", "chrf"])
    bleu, chrf = scores["BLEU"].value, scores["chrF2"].value
    share, source = chrf / plain if plain else 0.0, lines_sha256(text.sources)
    return PerturbedScores(bleu=bleu, chrf=chrf, share=share, source=source)


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
        score = corpus_score(metric, translate(choice), references, target_language)
        trials.append(Trial(settings=settings, score=score))
        print(f"validation set  {metric} {score:5.2f}  {' '.join(settings)}", flush=True)
    chosen = max(trials, key=lambda trial: trial.score).settings
    return Tuning(metric=metric, num_lines=len(references), trials=trials, chosen=chosen)
