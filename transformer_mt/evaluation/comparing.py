"""Says whether one system translates a test set better than another, or may only have been lucky.

Both tests are sacreBLEU's, and compare every system with the first one, the baseline: paired bootstrap resampling
(Koehn 2004) and paired approximate randomisation (Riezler and Maxwell 2005).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from transformer_mt.evaluation.metrics import METRICS, MetricName, check_aligned, check_words, metrics_of
from transformer_mt.evaluation.named_sets import NamedSet, signed
from transformer_mt.wording import counted

LEVEL = 0.05  # a difference counts if chance alone makes such a one in fewer than 5 of 100 cases
BOOTSTRAP, RANDOMISATION = "bs", "ar"  # as sacreBLEU calls them
TESTS = {BOOTSTRAP: "paired bootstrap", RANDOMISATION: "paired approximate randomisation"}
LOWER_IS_BETTER = ("TER",)


@dataclass(frozen=True)
class System:
    """Translations of a test set, and where they come from."""

    name: str
    lines: Sequence[str]
    seed: int | None = None
    """training.seed of the run; None if only a file is known."""
    experiment: str = ""
    """The same for all runs that differ in nothing but training.seed and their directories."""


@dataclass(frozen=True)
class Compared:
    """One system by one metric."""

    system: str
    value: float
    interval: float
    """Half of the 95 % confidence interval, from 1,000 bootstrap samples."""
    p_values: dict[str, float]
    """By test: how often chance alone would make a difference from the baseline as large as this one. Empty for the
    baseline."""


@dataclass(frozen=True)
class MetricTable:
    """All systems by one metric; the first is the baseline."""

    metric: str
    signatures: dict[str, str]
    """By test."""
    systems: list[Compared]


@dataclass(frozen=True)
class Seeds:
    """The mean and the spread of runs that differ only in training.seed, by one metric."""

    systems: list[str]
    metric: str
    mean: float
    spread: float
    """The standard deviation of a single run (n - 1 in the denominator)."""


@dataclass(frozen=True)
class Difference:
    """A line that a system translates much better or worse than the baseline does."""

    line: int
    """From 1."""
    baseline: float
    """The chrF2 of the line."""
    system: float


def compare(
    systems: Sequence[System],
    references: Sequence[Sequence[str]],
    target_language: str = "",
    metrics: Sequence[MetricName] = METRICS,
    named: NamedSet | None = None,
) -> list[MetricTable]:
    """Compare each system with the first one, by each of these metrics. `named` is as in `score_corpus`.

    Raises EvaluationError if texts differ in length, or if a metric cannot be computed.
    """
    names = [system.name for system in systems]
    texts = [*(system.lines for system in systems), *references]
    all_names = [*names, *(f"reference {number + 1}" for number in range(len(references)))]
    check_aligned(texts, all_names)
    check_words(texts, all_names)
    measures = metrics_of(metrics, target_language)
    found = {}
    for test in TESTS:
        # sacreBLEU orders the systems after the baseline by nothing else than this order.
        pairs = [(system.name, system.lines) for system in systems]
        found[test] = PairedTest(pairs, measures, references, test)()
    return [_table(metric, names, found, named) for metric in found[BOOTSTRAP][0]]


def _table(metric: str, names: Sequence[str], found: dict[str, tuple[Any, Any]], named: NamedSet | None) -> MetricTable:
    signatures = {test: signed(all_signatures[metric], named) for test, (all_signatures, _) in found.items()}
    rows = []
    for number, name in enumerate(names):
        results: dict[str, Result] = {test: all_results[metric][number] for test, (_, all_results) in found.items()}
        p_values = {test: float(result.p_value) for test, result in results.items() if result.p_value is not None}
        bootstrap = results[BOOTSTRAP]
        assert bootstrap.ci is not None
        rows.append(Compared(name, float(bootstrap.score), float(bootstrap.ci), p_values))
    return MetricTable(metric, signatures, rows)


def conclusion(table: MetricTable, number: int, is_same_text: bool) -> str:
    """Return a sentence about what may be concluded of system `number` and the baseline by this metric."""
    baseline, system = table.systems[0], table.systems[number]
    if is_same_text:
        return f"{system.system} writes the same text as {baseline.system}: there is nothing to compare."
    difference = system.value - baseline.value
    if difference == 0:
        return f"{system.system} and {baseline.system} have the same {table.metric}: no difference can be concluded."
    better = (difference > 0) != (table.metric in LOWER_IS_BETTER)
    size = f"{abs(difference):.1f} {table.metric}"
    significant = [p < LEVEL for p in system.p_values.values()]
    if all(significant):
        word = "better" if better else "worse"
        return (
            f"{system.system} is {word} than {baseline.system} by {size}: by both tests, chance alone makes such a "
            f"difference in fewer than {LEVEL * 100:.0f} of 100 cases."
        )
    if any(significant):
        return (
            f"The two tests disagree about {system.system} and {baseline.system}, which differ by {size}: do not "
            "conclude that one is better; compare on more sentences."
        )
    return (
        f"{system.system} and {baseline.system} differ by {size}, which chance alone may make: no difference can be "
        "concluded from these sentences."
    )


def by_seed(systems: Sequence[System], tables: Sequence[MetricTable]) -> list[Seeds]:
    """Sum up the runs of one experiment that differ only in training.seed; single runs are left out."""
    groups: dict[str, list[int]] = {}
    for number, system in enumerate(systems):
        if system.seed is not None:
            groups.setdefault(system.experiment, []).append(number)
    return [
        Seeds(
            [systems[number].name for number in group], table.metric, statistics.mean(values), statistics.stdev(values)
        )
        for group in groups.values()
        if len({systems[number].seed for number in group}) > 1
        for table in tables
        for values in [[table.systems[number].value for number in group]]
    ]


def most_different(
    baseline: Sequence[str], system: Sequence[str], references: Sequence[Sequence[str]], count: int
) -> list[Difference]:
    """Return the lines whose chrF2 differs most between two systems, the most different first.

    chrF2 is taken because BLEU of a single sentence says little.
    """
    metric = CHRF()
    differences = []
    for number, (ours, theirs, *wanted) in enumerate(zip(baseline, system, *references, strict=True), start=1):
        if ours != theirs:
            scores = [float(metric.sentence_score(line, wanted).score) for line in (ours, theirs)]
            differences.append(Difference(number, *scores))
    differences.sort(key=lambda each: (-abs(each.system - each.baseline), each.line))
    return differences[:count]


def caution(num_systems: int) -> str | None:
    """Return a note for comparisons of many systems, where some difference appears by chance; None for one or two."""
    others = num_systems - 1
    if others < 2:
        return None
    chance = 1 - math.pow(1 - LEVEL, others)
    return (
        f"note: with {counted(others, 'comparison')}, chance alone makes at least one look significant in "
        f"{chance * 100:.0f} of 100 cases. Take p < {LEVEL / others:.3f} for each, to be as sure as with a single one"
    )
