"""Gathers what is known about the test sets: scores, comparisons, and translations."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import UserError
from transformer_mt.evaluation.analysis import analyse, rarest_pieces
from transformer_mt.evaluation.compare_text import comparison, json_of
from transformer_mt.evaluation.compared_runs import compared_runs, read_translations
from transformer_mt.evaluation.score_file import TestSetScores, read_scores
from transformer_mt.evaluation.scores import Results
from transformer_mt.evaluation.test_sets import TestSet, model_in, read_test_sets, results_dir
from transformer_mt.languages import has_spaces
from transformer_mt.reporting.gathered import Missing, Run, Sample, Scored, TestReport, TestText

SAMPLES = 8  # lines of each test set that are shown
_MOST_COMPARED = 3_000_000  # characters of all translations, whose paired tests take less than a minute
_MOST_ANALYSED = 1_000_000  # characters, whose chrF2 is computed in seconds


def gather_tests(runs: Sequence[Run]) -> tuple[list[TestReport], dict[str, Missing]]:
    """The test sets that a run was evaluated on; and by run, why its scores are missing."""
    results, missing = dict[str, Results](), dict[str, Missing]()
    for run in runs:
        found = _scores_of(run)
        if isinstance(found, Missing):
            missing[run.name] = found
        else:
            results[run.name] = found
    names = list(dict.fromkeys(name for found in results.values() for name in found))
    return [_test(name, runs, results) for name in names], missing


def _scores_of(run: Run) -> Results | Missing:
    path = results_dir(model_in(run.directory)) / "scores.json"
    if not path.is_file():
        first = "" if run.model else f"run `python -m transformer_mt.average {run.name}`, then "
        return Missing(
            f"{run.name} is not evaluated yet: {first}run `python -m transformer_mt.evaluate {run.name} --analyse`."
        )
    try:
        return read_scores(path)
    except UserError as error:
        return Missing(f"{error}.")


def _test(name: str, runs: Sequence[Run], results: dict[str, Results]) -> TestReport:
    notes = list[str]()
    text = _text(name, [(run, results[run.name][name]) for run in runs if name in results.get(run.name, {})], notes)
    scored = []
    for run in runs:
        if (found := results.get(run.name, {}).get(name)) is not None:
            details = found.model_dump(mode="json", exclude_none=True)
            scored.append(Scored(run.name, details["scores"], details | _analysis(name, run, details, text, notes)))
    if isinstance(text, Missing):
        return TestReport(name, scored, text, [], None, notes)
    lines = sorted({round(number * (len(text.sources) - 1) / max(SAMPLES - 1, 1)) for number in range(SAMPLES)})
    samples = [_sample(text, line) for line in lines]
    worst = _worst(scored, text)
    return TestReport(name, scored, samples, worst, _comparison(name, runs, text), notes)


def _text(name: str, runs: Sequence[tuple[Run, TestSetScores]], notes: list[str]) -> TestText | Missing:
    """The text of the test set, and the translations of all runs that have translated the same text."""
    first: TestSet | None = None
    translations = dict[str, list[str]]()
    for run, scored in runs:
        try:
            own = read_test_sets(Path(run.config.data_dir), [name])[name]
            lines = read_translations(run.name, model_in(run.directory), name, own, scored)
        except (UserError, OSError) as error:
            notes.append(f"The translations of {run.name} are left out: {error}.")
            continue
        first = first or own
        if own != first:
            notes.append(f"The translations of {run.name} are left out: its test set {name} has other sentences.")
        elif len(lines) != len(own.sources):
            notes.append(
                f"The translations of {run.name} are left out: there are {len(lines):,} for {len(own.sources):,} "
                f"sentences. Run `python -m transformer_mt.evaluate {run.name}` again."
            )
        else:
            translations[run.name] = lines
    if first is None or not translations or not first.sources:
        return Missing(f"There are no translations of {name} with their sentences.")
    return TestText(first.sources, first.references[0], translations)


def _analysis(
    name: str, run: Run, details: dict[str, Any], text: TestText | Missing, notes: list[str]
) -> dict[str, Any]:
    """The analysis of the translations, if scores.json has none and it is quickly made."""
    if "analysis" in details or isinstance(text, Missing) or run.name not in text.translations:
        return {}
    size = max(_size(text.translations[run.name]), _size(text.references))
    if size > _MOST_ANALYSED:
        notes.append(
            f"Scores of {run.name} by length and rarest piece are left out, because the text has {size:,} "
            f"characters: `python -m transformer_mt.evaluate {run.name} --analyse` computes them."
        )
        return {}
    languages = run.config.corpus.languages_of(run.config.corpus.test[name]) if name in run.config.corpus.test else None
    source, target = languages or (run.config.corpus.source_language, run.config.corpus.target_language)
    try:
        tokenizer = Tokenizer.load(model_in(run.directory))
        rarest = rarest_pieces(Path(run.config.data_dir), tokenizer, text.sources)
        found = analyse(text.sources, text.translations[run.name], text.references, (source, target), rarest)
    except UserError as error:
        notes.append(f"Scores of {run.name} by length and rarest piece are left out: {error}.")
        return {}
    return {"analysis": {"unit": "word" if has_spaces(source) else "character", **asdict(found)}}


def _size(lines: Sequence[str]) -> int:
    return sum(map(len, lines))


def _sample(text: TestText, line: int, note: str = "") -> Sample:
    """The line with this number, from 0."""
    lines = [(name, translations[line]) for name, translations in text.translations.items()]
    return Sample(line + 1, text.sources[line], text.references[line], lines, note)


def _worst(scored: Sequence[Scored], text: TestText) -> list[Sample]:
    """The lines that the analysis of each run calls its worst."""
    found = dict[int, Sample]()
    for each in scored:
        for worst in each.details.get("analysis", {}).get("worst", []):
            line = worst["line"] - 1
            if each.run in text.translations and 0 <= line < len(text.sources):
                note = f"chrF2 of {each.run}: {worst['chrf']:.1f}"
                before = found.get(line)
                found[line] = replace(before, note=f"{before.note}; {note}") if before else _sample(text, line, note)
    return list(found.values())


def _comparison(name: str, runs: Sequence[Run], text: TestText) -> dict[str, Any] | Missing | None:
    """The paired tests of the runs with the first one."""
    if len(text.translations) < 2:
        return None
    paths = [run.directory for run in runs if run.name in text.translations]
    size = sum(map(_size, [*text.translations.values(), text.references]))
    if size > _MOST_COMPARED:
        command = " ".join(map(str, paths))
        return Missing(
            f"The paired tests would take minutes for {size:,} characters: run "
            f"`python -m transformer_mt.evaluate --compare {command} --test {name}`."
        )
    try:
        [test] = compared_runs(paths, name)
        baseline = [*test.systems[0].lines]
        same = [system.name for system in test.systems if [*system.lines] == baseline]
        return json_of(comparison(test, ("bleu", "chrf"))) | {"notes": test.notes, "same_text": same}
    except UserError as error:
        return Missing(f"The paired tests are left out: {error}.")
