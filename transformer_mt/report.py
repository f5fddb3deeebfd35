"""The stage `report`: runs become one page of HTML that shows what was trained, how it learnt and what it can do."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transformer_mt.errors import UserError
from transformer_mt.reporting import charts
from transformer_mt.reporting.gathered import Curve, Missing, Run
from transformer_mt.reporting.learning import read_log
from transformer_mt.reporting.page import MARK, Report, page_of
from transformer_mt.reporting.prepared_text import gather_corpora, positions_of
from transformer_mt.reporting.runs import open_runs
from transformer_mt.reporting.sentences import choose, translate
from transformer_mt.reporting.tested import gather_tests
from transformer_mt.storage.files import is_stream, write_whole
from transformer_mt.terminal import cli
from transformer_mt.wording import counted

_DESCRIPTION = """\
Reads one run or more, and writes a page of HTML that any browser shows, without a network: the settings and how they
differ, learning curves, scores of the test sets with paired tests, translations, attention of layers and heads to
choose, encodings of positions, and the corpus.

Reads what `train`, `average`, `evaluate` and `prepare` have written; config.yaml of the run says where the data are.
What is missing is left out, and the page says why. A model translates a few sentences, on the CPU. The page contains
sentences of your test sets: mind that before you give it away. The same input gives exactly the same file."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report of the runs that are named."""
    parser = cli.parser(
        "report", _DESCRIPTION, "python -m transformer_mt.report runs/demo_en_de runs/other --output report.html"
    )
    parser.add_argument(
        "runs",
        metavar="RUN_DIR",
        type=Path,
        nargs="+",
        help="the directory of a run, or of a model; the first is the baseline",
    )
    parser.add_argument(
        "--output", metavar="FILE", type=Path, required=True, help="the page; a file of this command is replaced"
    )
    parser.add_argument(
        "--sentence",
        metavar="TEXT",
        action="append",
        default=[],
        help="translate this sentence and show its attention; may be repeated (default: three of the test set)",
    )
    arguments = parser.parse_intermixed_args(argv)
    _check_output(arguments.output)
    if any(not sentence.strip() for sentence in arguments.sentence):
        parser.error("--sentence: the text is blank")
    report = gather(open_runs(arguments.runs), arguments.sentence)
    page = page_of(report).encode("utf-8", "replace")  # the path of a run need not be UTF-8
    write_whole(arguments.output, page)
    print(f"{cli.shown(arguments.output)}: {counted(len(report.runs), 'run')}, {len(page) / 1e6:.2f} MB")
    return 0


def _check_output(path: Path) -> None:
    """Raises UserError if the file exists and is no report, or if its directory does not exist."""
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no directory {path.parent}; make it, or name another place")
    if path.is_dir():
        raise UserError(f"{path}: is a directory; name a file, such as {path / 'report.html'}")
    if not path.exists() or is_stream(path):
        return
    with path.open("rb") as file:
        beginning = file.read(1000)
    if beginning and MARK.encode() not in beginning:
        raise UserError(
            f"{path}: is there already, and is not a page that `report` has written, so it is left as it is. "
            "Name another file"
        )


def gather(runs: list[Run], sentences: Sequence[str]) -> Report:
    """Read all that the page says. The sentences are translated; without any, some of a test set."""
    tests, not_evaluated = gather_tests(runs)
    chosen = list(dict.fromkeys(sentences)) or choose(tests, runs)
    translated, notes = ([], []) if isinstance(chosen, Missing) else translate(runs, chosen)
    corpora, corpus_notes = gather_corpora(runs)
    return Report(
        runs=runs,
        logs={run.name: read_log(run.directory) if run.is_run else _no_run(run) for run in runs},
        tests=tests,
        not_evaluated=not_evaluated,
        sentences=chosen if isinstance(chosen, Missing) else translated,
        sentence_notes=notes,
        corpora=corpora,
        corpus_notes=corpus_notes,
        positions=_positions(runs),
    )


def _no_run(run: Run) -> Missing:
    return Missing(f"{run.name} is the directory of a model, which has no log: name the directory of its run.")


def _positions(runs: Sequence[Run]) -> list[tuple[str, charts.Map, charts.LineChart] | Missing]:
    """The encodings of the runs, once for all runs that have the same."""
    missing, names = list[Missing](), dict[bytes, list[str]]()
    tables = dict[bytes, tuple[NDArray[np.float32], str]]()
    for run in runs:
        encodings = positions_of(run)
        if isinstance(encodings, Missing):
            missing.append(encodings)
        else:
            content = encodings[0].tobytes()
            tables[content] = encodings
            names.setdefault(content, []).append(run.name)
    found = [_drawn(number, names[content], *encodings) for number, (content, encodings) in enumerate(tables.items())]
    return [*found, *missing]


def _drawn(
    number: int, names: Sequence[str], table_TD: NDArray[np.float32], kind: str
) -> tuple[str, charts.Map, charts.LineChart]:
    """The encodings as a map, and the dot products of the one in the middle with all."""
    at = len(table_TD) // 2
    products = [float(f"{product:.6g}") for product in table_TD @ table_TD[at]]
    curves = {f"position {at}": (0, Curve(list(range(len(table_TD))), [*products]))}
    title = f"dot product of the encoding of position {at} with that of each position"
    chart = charts.lines(f"products-{number}", title, curves, "position")
    return f"{', '.join(names)}: {kind}", charts.map_of(table_TD), chart


if __name__ == "__main__":
    sys.exit(cli.run(main))
