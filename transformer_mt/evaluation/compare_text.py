"""Writes a comparison of systems as text and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformer_mt.errors import EvaluationError
from transformer_mt.evaluation.compared_runs import ComparedTest
from transformer_mt.evaluation.comparing import (
    TESTS,
    Compared,
    Difference,
    MetricTable,
    Seeds,
    by_seed,
    caution,
    compare,
    conclusion,
    most_different,
)
from transformer_mt.evaluation.metrics import METRICS, MetricName
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.json_text import read_json
from transformer_mt.wording import counted, visible


@dataclass(frozen=True)
class Comparison:
    """What is known about the systems on one test set."""

    test: ComparedTest
    tables: list[MetricTable]
    seeds: list[Seeds]
    differences: dict[str, list[Difference]]
    """For each system after the baseline, the lines that differ most from the baseline's."""


def comparison(test: ComparedTest, metrics: Sequence[MetricName] = METRICS, shown: int = 3) -> Comparison:
    """Compare the systems of a test set; `shown` is how many of the lines that differ most are kept for each."""
    tables = compare(test.systems, test.references, test.target_language, metrics, test.named)
    baseline = test.systems[0].lines
    differences = {
        system.name: most_different(baseline, system.lines, test.references, shown) for system in test.systems[1:]
    }
    return Comparison(test, tables, by_seed(test.systems, tables), differences)


def text_of(comparison: Comparison) -> str:
    """Return a table for each metric, what may be concluded, and the lines that differ most."""
    test = comparison.test
    size = counted(len(test.references[0]), "sentence")
    parts = [f"{test.name}: {size}, {counted(len(test.references), 'reference')}; baseline: {test.systems[0].name}"]
    same_text = [_is_same(test, number) for number in range(len(test.systems))]
    parts += [_table(table, same_text) for table in comparison.tables]
    parts += [_seeds(comparison.seeds)] if comparison.seeds else []
    parts.append("\n".join(_conclusions(comparison)))
    for system in test.systems[1:]:
        if found := comparison.differences.get(system.name):
            parts.append(_different(test, system.lines, system.name, found))
    return "\n\n".join(parts)


def json_of(comparison: Comparison) -> dict[str, Any]:
    """Return the same for a JSON file."""
    test = comparison.test
    return {
        "test": test.name,
        "num_lines": len(test.references[0]),
        "num_references": len(test.references),
        "baseline": test.systems[0].name,
        "metrics": [asdict(table) for table in comparison.tables],
        "seeds": [asdict(seeds) for seeds in comparison.seeds],
        "conclusions": _conclusions(comparison),
        "most_different": {
            name: [asdict(difference) for difference in found] for name, found in comparison.differences.items()
        },
    }


def write_comparison(path: Path, comparisons: Sequence[Comparison]) -> None:
    """Write comparisons as JSON. Raises EvaluationError if the file exists and holds something else."""
    check_comparison_file(path)
    write_whole(path, json.dumps([json_of(each) for each in comparisons], indent=2, ensure_ascii=False) + "\n")


def check_comparison_file(path: Path) -> None:
    """Raises EvaluationError if the file exists and holds something else than a comparison."""
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return
    try:
        found = read_json(path)
    except (OSError, ValueError):
        found = None
    if not (isinstance(found, list) and all(isinstance(each, dict) and "baseline" in each for each in found)):
        raise EvaluationError(
            f"{path}: is there already, and holds something else than a comparison by `evaluate --compare`, so it is "
            "left as it is. Move it away, or delete it"
        )


def _table(table: MetricTable, same_text: Sequence[bool]) -> str:
    width = max(len(system.system) for system in table.systems)
    heads = "  ".join(f"p {name}" for name in ("bootstrap", "randomisation"))
    lines = [f"{table.metric:{width}}  {'score':>12}  {heads}"]
    lines += [_row(system, width, is_same) for system, is_same in zip(table.systems, same_text, strict=True)]
    lines += [f"  {name}: {table.signatures[test]}" for test, name in TESTS.items()]
    return "\n".join(lines)


def _row(system: Compared, width: int, is_same: bool) -> str:
    score = f"{system.value:5.1f} ± {system.interval:.1f}"
    p_values = [f"{system.p_values[test]:.4f}" for test in TESTS if test in system.p_values]
    if is_same and p_values:  # sacreBLEU gives them the least p-value there is, as no sample differs by more than 0
        p_values = ["same text", "same text"]
    columns = "  ".join(f"{p:>{size}}" for p, size in zip(p_values, (11, 15), strict=False))
    return f"{system.system:{width}}  {score:>12}  {columns}".rstrip()


def _conclusions(comparison: Comparison) -> list[str]:
    test = comparison.test
    lines = []
    for number in range(1, len(test.systems)):
        is_same = _is_same(test, number)
        sentences = [conclusion(table, number, is_same) for table in comparison.tables]
        lines += sentences[:1] if is_same else sentences
    note = caution(len(test.systems))
    return [*lines, note] if note else lines


def _is_same(test: ComparedTest, number: int) -> bool:
    """Whether a system writes the same text as the baseline."""
    return [*test.systems[number].lines] == [*test.systems[0].lines]


def _seeds(seeds: Sequence[Seeds]) -> str:
    lines = ["runs that differ only in training.seed (mean and standard deviation)"]
    for each in seeds:
        lines.append(f"  {each.metric:7} {each.mean:5.1f} ± {each.spread:.1f}  {', '.join(each.systems)}")
    return "\n".join(lines)


def _different(test: ComparedTest, lines: Sequence[str], name: str, found: Sequence[Difference]) -> str:
    baseline = test.systems[0]
    text = [f"where {name} differs most from {baseline.name} (chrF2 of the line)"]
    width = max(len(name), len(baseline.name), len("reference"))
    for difference in found:
        at = difference.line - 1
        text.append(f"line {difference.line:,}")
        if test.sources is not None:
            text.append(f"  {'source':{width}}         {visible(test.sources[at])}")
        text += [f"  {'reference':{width}}         {visible(reference[at])}" for reference in test.references]
        text.append(f"  {baseline.name:{width}}  {difference.baseline:5.1f}  {visible(baseline.lines[at])}")
        text.append(f"  {name:{width}}  {difference.system:5.1f}  {visible(lines[at])}")
    return "\n".join(text)
