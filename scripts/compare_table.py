"""Shows the results of scripts/compare_architectures.sh: a table in Markdown, and BLEU by source length as a picture.

    python scripts/compare_table.py RUNS_DIR NAME …

Reads the run RUNS_DIR/NAME of each architecture and, if there are any, the speeds in RUNS_DIR/speed. Prints the table
and writes RUNS_DIR/by_length.png.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from check_requirements import stop

try:
    from safetensors import safe_open

    from transformer_mt.base.errors import EvaluationError
    from transformer_mt.evaluation.analysis import Group
    from transformer_mt.evaluation.scores_json import TestSetScores, read_scores
    from transformer_mt.reporting import picture_file
    from transformer_mt.terminal import cli
except ModuleNotFoundError as error:
    stop(error)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEAD = """\
| architecture | parameters | BLEU | target tokens/s in training | of training | sentences/s, beam 4 |
|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Row:
    """The results of an architecture. Speeds are None if they were not measured."""

    name: str
    num_parameters: int
    bleu: float
    interval: float
    by_length: list[Group]
    num_target_tokens: int
    """The number of target tokens of its training."""
    tokens_per_second: float | None
    sentences_per_second: float | None


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and write the picture. Raises EvaluationError if results are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="RUNS_DIR", type=Path)
    parser.add_argument("names", metavar="NAME", nargs="+")
    arguments = parser.parse_args(argv)
    rows = [read_row(arguments.runs, name) for name in arguments.names]
    print(table(rows))
    draw(rows, arguments.runs / "by_length.png")
    return 0


def read_row(runs: Path, name: str) -> Row:
    """Read the results of runs/name on its only test set."""
    run, speed = runs / name, runs / "speed"
    [scores] = _scores(run / "evaluation" / "scores.json")
    bleu = scores.scores["BLEU"]
    tokens_per_second = sentences_per_second = None
    if (speed / f"{name}.json").exists():
        tokens_per_second = _updates(speed / name)[-1]["tokens_per_second"]
        [again] = _scores(speed / f"{name}.json")
        sentences_per_second = again.sentences_per_second
    return Row(
        name,
        num_parameters(run / "model" / "model.safetensors"),
        bleu.value,
        bleu.interval or 0.0,
        [] if scores.analysis is None else scores.analysis.by_length,
        _updates(run)[-1]["tokens"],
        tokens_per_second,
        sentences_per_second,
    )


def num_parameters(path: Path) -> int:
    """Count the parameters in a file of weights, in which a tied matrix is stored once."""
    total = 0
    with safe_open(path, "pt") as weights:
        for name in weights.keys():  # noqa: SIM118 - it is not a dictionary
            size = 1
            for length in weights.get_slice(name).get_shape():
                size *= length
            total += size
    return total


def table(rows: Sequence[Row]) -> str:
    """Return the table in Markdown, with a dash for missing measurements.

    The minutes of training are the number of tokens divided by the measured speed.
    """
    lines = [_HEAD]
    for row in rows:
        training = minutes = decoding = "–"
        if row.tokens_per_second is not None and row.sentences_per_second is not None:
            training, decoding = f"{row.tokens_per_second:,.0f}", f"{row.sentences_per_second:.1f}"
            minutes = f"{row.num_target_tokens / row.tokens_per_second / 60:.0f} min"
        bleu = f"{row.bleu:.1f} ± {row.interval:.1f}"
        lines.append(f"| {row.name} | {row.num_parameters:,} | {bleu} | {training} | {minutes} | {decoding} |")
    return "\n".join(lines)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture as PNG. Raises UserError without matplotlib."""
    picture_file.write(path, lambda: figure_of(rows))


def figure_of(rows: Sequence[Row]) -> "Figure":
    """Draw BLEU by length, one line for each architecture; the axis shows lengths and numbers of sentences."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        style = "--" if row.name.startswith("transformer") else "-"
        values = [group.bleu for group in row.by_length]
        axes.plot(range(len(values)), values, style, marker="o", markersize=3, label=row.name)
    groups = rows[0].by_length
    axes.set_xticks(range(len(groups)), [f"{each.least}–{each.most}\n{each.num_lines}" for each in groups])
    axes.set(xlabel="words of the source; below, the number of sentences", ylabel="BLEU")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right center", fontsize="small")
    return figure


def _scores(path: Path) -> list[TestSetScores]:
    found = list(read_scores(path).values())
    if not found:
        raise EvaluationError(f"{path} is missing, or has no scores; run scripts/compare_architectures.sh to its end")
    return found


def _updates(run: Path) -> list[dict[str, Any]]:
    """Return the lines of the log about updates, in order."""
    try:
        records = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise EvaluationError(f"{run}: has no log ({error}); run scripts/compare_architectures.sh again") from None
    return [record for record in records if "tokens_per_second" in record]


if __name__ == "__main__":
    sys.exit(cli.run(main))
