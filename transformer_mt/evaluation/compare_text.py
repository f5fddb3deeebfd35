"""Writes a comparison of systems as text and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformer_mt.errors import EvaluationError
from transformer_mt.evaluation.comparing import TESTS, ComparedTest, compare, conclusions
from transformer_mt.evaluation.metrics import METRICS, MetricName
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.json_text import read_json
from transformer_mt.wording import counted


def comparison(test: ComparedTest, metrics: Sequence[MetricName] = METRICS) -> dict[str, Any]:
    """What is known about the systems of a test set, for a JSON file."""
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
    """A table for each metric, and what may be concluded."""
    size = f"{counted(found['num_lines'], 'sentence')}, {counted(found['num_references'], 'reference')}"
    parts = [f"{found['test']}: {size}; baseline: {found['baseline']}", *map(_table, found["metrics"])]
    return "\n\n".join([*parts, "\n".join(found["conclusions"])])


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
