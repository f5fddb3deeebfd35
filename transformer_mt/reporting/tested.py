"""Gathers what is known about the test sets: scores, comparisons, and translations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_mt.errors import EvaluationError
from transformer_mt.evaluation.compare_text import comparison
from transformer_mt.evaluation.compared_runs import read_translations
from transformer_mt.evaluation.comparing import ComparedTest
from transformer_mt.evaluation.test_sets import TestSet, model_in, read_test_sets
from transformer_mt.reporting.gathered import Notes, Run, Sample, TestReport, left_out

SAMPLES = 8  # lines of each test set that are shown
_MOST_COMPARED = 3_000_000  # characters of all texts, whose paired tests take less than a minute
_LONGEST_COMPARED = 10_000  # characters of a line: the n-grams of a longer one take seconds


def gather_tests(runs: Sequence[Run], notes: Notes) -> list[TestReport]:
    """The test sets that a run was evaluated on."""
    names = dict.fromkeys(name for run in runs for name in run.results)
    return [_test(name, [run for run in runs if name in run.results], notes) for name in names]


def _test(name: str, runs: Sequence[Run], notes: Notes) -> TestReport:
    report = TestReport(name, {run.name: run.results[name].model_dump(mode="json", exclude_none=True) for run in runs})
    text, translations = _texts(name, runs, notes["translations"])
    if text is None:
        notes["translations"].append(f"There are no translations of {name} with their sentences.")
        return report
    last = len(text.sources) - 1
    lines = sorted({round(number * last / (SAMPLES - 1)) for number in range(SAMPLES)})
    report.samples = [_sample(text, translations, line) for line in lines]
    report.worst = _worst(report.scored, text, translations)
    if len(translations) > 1:
        language = runs[0].config.corpus.target_language
        test = ComparedTest(name, text.references, list(translations.items()), language)
        with left_out(notes["scores"], "The paired tests are left out: "):
            report.comparison = _comparison(test)
    return report


def _texts(name: str, runs: Sequence[Run], notes: list[str]) -> tuple[TestSet | None, dict[str, list[str]]]:
    """The text of the test set, and the translations of all runs that have translated the same text."""
    first: TestSet | None = None
    translations = dict[str, list[str]]()
    for run in runs:
        with left_out(notes, f"The translations of {run.name} are left out: "):
            own = read_test_sets(Path(run.config.data_dir), [name])[name]
            lines = read_translations(run.name, model_in(run.directory), name, own, run.results[name])
            if first is not None and own != first:
                raise EvaluationError(f"its test set {name} has other sentences")
            if not own.sources or len(lines) != len(own.sources):
                raise EvaluationError(
                    f"there are {len(lines):,} for {len(own.sources):,} sentences. Run "
                    f"`python -m transformer_mt.evaluate {run.name}` again"
                )
            first, translations[run.name] = own, lines
    return first, translations


def _sample(text: TestSet, translations: dict[str, list[str]], line: int, note: str = "") -> Sample:
    """The line with this number, from 0."""
    lines = {name: translated[line] for name, translated in translations.items()}
    return Sample(line + 1, text.sources[line], text.references[0][line], lines, note)


def _worst(scored: dict[str, dict[str, Any]], text: TestSet, translations: dict[str, list[str]]) -> list[Sample]:
    """The lines that the analysis of each run calls its worst."""
    notes = dict[int, list[str]]()
    for name in translations:
        for worst in scored[name].get("analysis", {}).get("worst", []):
            if 1 <= worst["line"] <= len(text.sources):
                notes.setdefault(worst["line"] - 1, []).append(f"chrF2 of {name}: {worst['chrf']:.1f}")
    return [_sample(text, translations, line, "; ".join(found)) for line, found in notes.items()]


def _comparison(test: ComparedTest) -> dict[str, Any]:
    """The paired tests of the runs with the first one. Raises EvaluationError if a reader would wait for minutes."""
    lines = [line for text in (*(lines for _, lines in test.systems), *test.references) for line in text]
    if sum(map(len, lines)) > _MOST_COMPARED or max(map(len, lines)) > _LONGEST_COMPARED:
        command = f"--compare {' '.join(name for name, _ in test.systems)} --test {test.name}"
        raise EvaluationError(
            f"they may take minutes for so much text; run `python -m transformer_mt.evaluate {command}`"
        )
    return comparison(test, ("bleu", "chrf"))
