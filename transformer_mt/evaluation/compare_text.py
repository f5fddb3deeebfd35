"""Writes a comparison of systems as text and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformer_mt.errors import EvaluationError
from transformer_mt.evaluation.comparing import TESTS, ComparedTest, compare, conclusions, most_different
from transformer_mt.evaluation.metrics import METRICS, MetricName
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.json_text import read_json
from transformer_mt.wording import counted, visible


def comparison(test: ComparedTest, metrics: Sequence[MetricName] = METRICS) -> dict[str, Any]:
    """What is known about the systems of a test set, for a JSON file."""
    tables = compare(test, metrics)
    different = [(name, most_different(test, number)) for number, (name, _) in enumerate(test.systems) if number]
    return {
        "test": test.name,
        "num_lines": len(test.references[0]),
        "num_references": len(test.references),
        "baseline": test.systems[0][0],
        "metrics": [asdict(table) for table in tables],
        "conclusions": conclusions(test, tables),
        "most_different": {name: [asdict(difference) for difference in found] for name, found in different},
    }


def text_of(test: ComparedTest, found: dict[str, Any]) -> str:
    """A table for each metric, what may be concluded, and the lines that differ most, with their texts."""
    size = f"{counted(found['num_lines'], 'sentence')}, {counted(found['num_references'], 'reference')}"
    parts = [f"{test.name}: {size}; baseline: {found['baseline']}", *map(_table, found["metrics"])]
    parts.append("\n".join(found["conclusions"]))
    parts += [_different(test, name, lines) for name, lines in found["most_different"].items() if lines]
    return "\n\n".join(parts)


def write_comparison(path: Path, comparisons: Sequence[dict[str, Any]]) -> None:
    """Write comparisons as JSON. Raises EvaluationError if the file exists and holds something else."""
    check_comparison_file(path)
    write_whole(path, json.dumps(comparisons, indent=2, ensure_ascii=False) + "\n")


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


def _table(table: dict[str, Any]) -> str:
    width = max(len(system["system"]) for system in table["systems"])
    lines = [f"{table['metric']:{width}}  {'score':>12}  p bootstrap  p randomisation"]
    for number, system in enumerate(table["systems"]):
        score = f"{system['value']:5.1f} ± {system['interval']:.1f}"
        p_values = [f"{p:.4f}" for p in system["p_values"].values()] or ["same text" if number else ""] * 2
        lines.append(f"{system['system']:{width}}  {score:>12}  {p_values[0]:>11}  {p_values[1]:>15}".rstrip())
    return "\n".join([*lines, *(f"  {name}: {table['signatures'][test]}" for test, name in TESTS.items())])


def _different(test: ComparedTest, name: str, found: Sequence[dict[str, Any]]) -> str:
    baseline, ours = test.systems[0]
    theirs = dict(test.systems)[name]
    width = max(len(name), len(baseline), len("reference"))
    text = [f"where {name} differs most from {baseline} (chrF2 of the line)"]
    for difference in found:
        at = difference["line"] - 1
        text.append(f"line {difference['line']:,}")
        if test.sources is not None:
            text.append(f"  {'source':{width}}         {visible(test.sources[at])}")
        text += [f"  {'reference':{width}}         {visible(reference[at])}" for reference in test.references]
        text.append(f"  {baseline:{width}}  {difference['baseline']:5.1f}  {visible(ours[at])}")
        text.append(f"  {name:{width}}  {difference['system']:5.1f}  {visible(theirs[at])}")
    return "\n".join(text)
