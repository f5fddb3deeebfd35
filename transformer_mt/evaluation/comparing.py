"""Says whether one system translates a test set better than another, or may only have been lucky.

Both tests are sacreBLEU's, and compare every system with the first one, the baseline: paired bootstrap resampling
(Koehn 2004) and paired approximate randomisation (Riezler and Maxwell 2005).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sacrebleu.significance import PairedTest, Result

from transformer_mt.evaluation.metrics import METRICS, MetricName, check_aligned, check_words, metrics_of
from transformer_mt.evaluation.named_sets import NamedSet, signed

LEVEL = 0.05  # a difference counts if chance alone makes such a one in fewer than 5 of 100 cases
TESTS = {"bs": "paired bootstrap", "ar": "paired approximate randomisation"}
"""As sacreBLEU calls them, and in words."""
LOWER_IS_BETTER = ("TER",)


@dataclass(frozen=True)
class ComparedTest:
    """A test set, and the systems that have translated it; the first is the baseline."""

    name: str
    references: Sequence[Sequence[str]]
    systems: Sequence[tuple[str, Sequence[str]]]
    """Names and translations."""
    target_language: str = ""
    notes: list[str] = field(default_factory=list)
    """What the systems differ in besides what was trained, each as a line for the user."""
    named: NamedSet | None = None
    """What sacreBLEU calls the test set; None for one of a configuration."""

    def is_same(self, number: int) -> bool:
        """Whether a system writes the same text as the baseline."""
        return [*self.systems[number][1]] == [*self.systems[0][1]]


@dataclass(frozen=True)
class Compared:
    """One system by one metric."""

    system: str
    value: float
    interval: float
    """Half of the 95 % confidence interval, from 1,000 bootstrap samples."""
    p_values: dict[str, float]
    """By test: how often chance alone would make a difference from the baseline as large as this one. Empty for the
    baseline, and for the same text: there sacreBLEU gives the least p-value there is, as no sample differs by more
    than 0."""


@dataclass(frozen=True)
class MetricTable:
    """All systems by one metric; the first is the baseline."""

    metric: str
    signatures: dict[str, str]
    """By test."""
    systems: list[Compared]


def compare(test: ComparedTest, metrics: Sequence[MetricName] = METRICS) -> list[MetricTable]:
    """Compare each system with the first one, by each of these metrics.

    Raises EvaluationError if texts differ in length, or if a metric cannot be computed.
    """
    names = [*(name for name, _ in test.systems), *(f"reference {at + 1}" for at in range(len(test.references)))]
    texts = [*(lines for _, lines in test.systems), *test.references]
    check_aligned(texts, names)
    check_words(texts, names)
    measures = metrics_of(metrics, test.target_language)
    # sacreBLEU orders the systems after the baseline by nothing else than this order.
    found: dict[str, tuple[Any, Any]]
    found = {kind: PairedTest([*test.systems], measures, test.references, kind)() for kind in TESTS}
    tables = []
    for metric in found["bs"][0]:
        signatures = {kind: signed(signed_by[metric], test.named) for kind, (signed_by, _) in found.items()}
        rows = []
        for number, (name, _) in enumerate(test.systems):
            results: dict[str, Result] = {kind: by_metric[metric][number] for kind, (_, by_metric) in found.items()}
            compared = results if number and not test.is_same(number) else {}
            p_values = {kind: float(result.p_value or 0.0) for kind, result in compared.items()}
            rows.append(Compared(name, float(results["bs"].score), float(results["bs"].ci or 0.0), p_values))
        tables.append(MetricTable(metric, signatures, rows))
    return tables


def conclusions(test: ComparedTest, tables: Sequence[MetricTable]) -> list[str]:
    """Sentences about what may be concluded of each system and the baseline."""
    baseline, found = test.systems[0][0], list[str]()
    for number, (name, _) in enumerate(test.systems[1:], start=1):
        if test.is_same(number):
            found.append(f"{name} writes the same text as {baseline}: there is nothing to compare.")
        else:
            found += [conclusion(table.metric, table.systems[0], table.systems[number]) for table in tables]
    if (others := len(test.systems) - 1) > 1:
        chance = 1 - (1 - LEVEL) ** others
        found.append(
            f"note: with {others} comparisons, chance alone makes at least one look significant in {chance * 100:.0f} "
            f"of 100 cases. Take p < {LEVEL / others:.3f} for each, to be as sure as with a single one"
        )
    return found


def conclusion(metric: str, baseline: Compared, system: Compared) -> str:
    """A sentence about what may be concluded of two systems that write different texts."""
    difference = system.value - baseline.value
    both, size = f"{system.system} and {baseline.system}", f"{abs(difference):.1f} {metric}"
    significant = [p < LEVEL for p in system.p_values.values()]
    if difference == 0:
        return f"{both} have the same {metric}: no difference can be concluded."
    if all(significant):
        word = "better" if (difference > 0) != (metric in LOWER_IS_BETTER) else "worse"
        return (
            f"{system.system} is {word} than {baseline.system} by {size}: by both tests, chance alone makes such a "
            f"difference in fewer than {LEVEL * 100:.0f} of 100 cases."
        )
    if any(significant):
        return (
            f"The two tests disagree about {both}, which differ by {size}: do not conclude that one is better; compare "
            "on more sentences."
        )
    return f"{both} differ by {size}, which chance alone may make: no difference can be concluded from these sentences."
