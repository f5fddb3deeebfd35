"""Tests whether one system translates a test set better than another, or whether the difference may be chance.

sacreBLEU computes the test, paired bootstrap resampling (Koehn 2004), of every system and the first one, the baseline.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sacrebleu.significance import PairedTest, Result

from transformer_mt.base.errors import EvaluationError
from transformer_mt.base.remote import Place
from transformer_mt.base.wording import counted
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.evaluation.evaluated_texts import (
    TestSet,
    chosen_test_sets,
    hypotheses_file,
    model_in,
    read_test_sets,
    results_dir,
)
from transformer_mt.evaluation.metrics import ALL_METRICS, METRICS, MetricName, check_aligned, check_words
from transformer_mt.evaluation.scores_json import TestSetScores, checksums_of, read_scores
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.checksums import weights_sha256
from transformer_mt.storage.files import read_json

LEVEL = 0.05  # a difference is significant if chance alone causes one as large in fewer than 5 of 100 cases
LOWER_IS_BETTER = ("TER",)


@dataclass(frozen=True)
class ComparedTest:
    """A test set and its translations by several systems; the first is the baseline."""

    name: str
    references: Sequence[Sequence[str]]
    systems: Sequence[tuple[str, Sequence[str]]]
    """Names and translations."""
    target_language: str = ""
    notes: list[str] = field(default_factory=list)
    """Lines for the user about other differences between the systems, such as settings of decoding."""

    def is_same(self, number: int) -> bool:
        """Whether a system has the same translations as the baseline."""
        return [*self.systems[number][1]] == [*self.systems[0][1]]


@dataclass(frozen=True)
class Compared:
    system: str
    value: float
    interval: float
    """Half of the 95 % confidence interval, from 1,000 bootstrap samples."""
    p_value: float | None
    """The probability that chance alone causes a difference from the baseline as large as this one. None for the
    baseline and for the same text, for which sacreBLEU would give the smallest possible p-value."""


@dataclass(frozen=True)
class MetricTable:
    """The scores of all systems by one metric; the first is the baseline."""

    metric: str
    signature: str
    systems: list[Compared]


def compare(test: ComparedTest, metrics: Sequence[MetricName] = METRICS) -> list[MetricTable]:
    """Compare each system with the first one by each metric. Raises EvaluationError if a metric cannot be computed."""
    names = [*(name for name, _ in test.systems), *(f"reference {at + 1}" for at in range(len(test.references)))]
    texts = [*(lines for _, lines in test.systems), *test.references]
    check_aligned(texts, names)
    check_words(texts, names)
    measures = {name: ALL_METRICS[name](test.target_language) for name in metrics}
    # sacreBLEU keeps this order of the systems; the first is its baseline.
    signatures, scores = PairedTest([*test.systems], measures, test.references, "bs")()
    tables = []
    for metric, signature in signatures.items():
        rows = []
        for number, ((name, _), result) in enumerate(zip(test.systems, scores[metric], strict=True)):
            assert isinstance(result, Result)
            p_value = float(result.p_value or 0.0) if number and not test.is_same(number) else None
            rows.append(Compared(name, float(result.score), float(result.ci or 0.0), p_value))
        tables.append(MetricTable(metric, str(signature), rows))
    return tables


def conclusions(test: ComparedTest, tables: Sequence[MetricTable]) -> list[str]:
    """Sentences that say what the tests show about each system and the baseline."""
    baseline, found = test.systems[0][0], list[str]()
    for number, (name, _) in enumerate(test.systems[1:], start=1):
        if test.is_same(number):
            found.append(f"{name} has the same translations as {baseline}: there is nothing to compare.")
        else:
            found += [conclusion(table.metric, table.systems[0], table.systems[number]) for table in tables]
    if (others := len(test.systems) - 1) > 1:
        chance = 1 - (1 - LEVEL) ** others
        found.append(
            f"note: with {others} comparisons, chance alone makes at least one look significant in {chance * 100:.0f} "
            f"of 100 cases. To be as sure as with a single comparison, require p < {LEVEL / others:.3f} for each"
        )
    return found


def conclusion(metric: str, baseline: Compared, system: Compared) -> str:
    """A sentence that says what the tests show about two systems with different translations."""
    difference = system.value - baseline.value
    both, size = f"{system.system} and {baseline.system}", f"{abs(difference):.1f} {metric}"
    if difference == 0:
        return f"{both} have the same {metric}: this shows no difference."
    if system.p_value is None or system.p_value >= LEVEL:
        return f"{both} differ by {size}, which may be chance: these sentences do not show that one is better."
    word = "better" if (difference > 0) != (metric in LOWER_IS_BETTER) else "worse"
    return (
        f"{system.system} is {word} than {baseline.system} by {size}: chance alone causes such a difference in fewer "
        f"than {LEVEL * 100:.0f} of 100 cases."
    )


@dataclass(frozen=True)
class _Run:
    name: str
    model: Path
    config: Config
    scored: dict[str, TestSetScores]


def compared_files(paths: Sequence[Path], references: Sequence[Place], language: str) -> ComparedTest:
    systems = [(str(path), list(read_lines(path))) for path in paths]
    return ComparedTest("files", [list(read_lines(path)) for path in references], systems, language)


def compared_runs(paths: Sequence[Path], test: str | None) -> list[ComparedTest]:
    """Read the translations of all test sets that these runs or models have in common, or only of `test`.

    Raises EvaluationError if `evaluate` has not translated one, if it has changed since, or if the references differ.
    """
    runs = [_read(path) for path in paths]
    common = [name for name in runs[0].config.corpus.test if all(name in run.config.corpus.test for run in runs)]
    if not common:
        raise EvaluationError(
            f"{' and '.join(run.name for run in runs)} have no test set in common: compare files of translations"
        )
    names = chosen_test_sets(common, test)
    texts = [read_test_sets(Path(run.config.data_dir), names) for run in runs]
    return [_compared(name, runs, [text[name] for text in texts]) for name in texts[0]]


def _read(path: Path) -> _Run:
    model = model_in(path)
    if not (model / "config.yaml").is_file():
        raise EvaluationError(
            f"{path}: is neither a run with a model, nor a model, nor a file of translations; give one of these"
        )
    return _Run(str(path), model, load_config(model / "config.yaml"), read_scores(results_dir(model) / "scores.json"))


def _compared(name: str, runs: Sequence[_Run], texts: Sequence[TestSet]) -> ComparedTest:
    first, first_text = runs[0], texts[0]
    systems, notes = [], []
    for run, text in zip(runs, texts, strict=True):
        if text.references != first_text.references:
            raise EvaluationError(
                f"{first.name} and {run.name} have different references for the test set {name}, so their scores "
                "cannot be compared: prepare both with the same test set, or compare files of translations"
            )
        systems.append((run.name, read_translations(run.name, run.model, name, text, run.scored.get(name))))
        notes += _notes(name, first, run)
    _, language = first.config.corpus.languages_of_test(name)
    return ComparedTest(name, first_text.references, systems, language, notes)


def read_translations(run: str, model: Path, name: str, text: TestSet, scored: TestSetScores | None) -> list[str]:
    """Return the translations of a test set that `evaluate` wrote for a model; `run` is its name in messages.

    Raises EvaluationError if there are none, or if they or the test set have changed since `scored` was computed.
    """
    file = hypotheses_file(model, name)
    again = f"python -m transformer_mt.evaluate {run} --test {name}"
    if not file.is_file():  # true also for a pipe: reading it might never end
        raise EvaluationError(f"{file}: is missing. Translate the test set first: {again}")
    lines = list(read_lines(file))
    if scored is not None and scored.checksums != checksums_of(text.sources, text.references, lines):
        raise EvaluationError(
            f"{file}: these translations or the sentences of the test set have changed since scores.json in the same "
            f"directory was written. Translate the test set again: {again}; or compare files of translations"
        )
    return lines


def _notes(name: str, first: _Run, run: _Run) -> list[str]:
    """Return lines for the user if the translations of a run are outdated, or used other settings than the first."""
    notes, ours, theirs = [], first.scored.get(name), run.scored.get(name)
    if theirs and theirs.model_sha256 not in (None, weights_sha256(run.model)):
        notes.append(
            f"warning: {run.name}: the translations are from an earlier model ({theirs.made_of or 'other weights'}): "
            f"run `python -m transformer_mt.evaluate {run.name}` again"
        )
    if ours and theirs and ours.decoding and theirs.decoding and ours.decoding != theirs.decoding:
        changed = [
            f"{key}: {value} in {first.name}, {getattr(theirs.decoding, key)}"
            for key, value in ours.decoding
            if value != getattr(theirs.decoding, key)
        ]
        notes.append(f"note: {run.name} was decoded with other settings than {first.name}: {'; '.join(changed)}")
    return notes


def comparison(test: ComparedTest, metrics: Sequence[MetricName] = METRICS) -> dict[str, Any]:
    """Compare the systems on a test set, and return the content of the JSON file."""
    tables = compare(test, metrics)
    return {
        "test": test.name,
        "num_lines": len(test.references[0]),
        "num_references": len(test.references),
        "baseline": test.systems[0][0],
        "metrics": [asdict(table) for table in tables],
        "conclusions": conclusions(test, tables),
    }


def text_of(found: dict[str, Any]) -> str:
    size = f"{counted(found['num_lines'], 'sentence')}, {counted(found['num_references'], 'reference')}"
    parts = [f"{found['test']}: {size}; baseline: {found['baseline']}", *map(_table, found["metrics"])]
    return "\n\n".join([*parts, "\n".join(found["conclusions"])])


def check_comparison_file(path: Path) -> None:
    """Raises EvaluationError if the file exists and is not a comparison."""
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return
    try:
        found = read_json(path)
    except (OSError, ValueError):
        found = None
    if not (isinstance(found, list) and all(isinstance(each, dict) and "baseline" in each for each in found)):
        raise EvaluationError(
            f"{path} exists, and is not a file of `evaluate --compare --json`; nothing was changed. Move it away, or "
            "choose another name"
        )


def _table(table: dict[str, Any]) -> str:
    width = max(len(system["system"]) for system in table["systems"])
    lines = [f"{table['metric']:{width}}  {'score':>12}  p bootstrap"]
    for number, system in enumerate(table["systems"]):
        score = f"{system['value']:5.1f} ± {system['interval']:.1f}"
        p_value = "same text" if number else ""
        if system["p_value"] is not None:
            p_value = f"{system['p_value']:.4f}"
        lines.append(f"{system['system']:{width}}  {score:>12}  {p_value:>11}".rstrip())
    return "\n".join([*lines, f"  {table['signature']}"])
