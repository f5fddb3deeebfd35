"""The stage `report`: writes one page of HTML about runs: what was trained, how it learnt, and how well it works."""

import sys
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.base.errors import UserError
from transformer_mt.base.wording import counted
from transformer_mt.reporting.gathered import (
    SECTIONS,
    Notes,
    choose,
    gather_tests,
    open_runs,
    translate,
)
from transformer_mt.reporting.page import MARK, Report, page_of
from transformer_mt.reporting.picture_file import check
from transformer_mt.storage.files import write_whole
from transformer_mt.terminal import cli

_DESCRIPTION = """\
Reads one or more runs, and writes a page of HTML that any browser shows without a network: the settings and how they
differ, learning curves, scores of the test sets with paired tests, translations, and attention (choose layer and head).

Reads the files of `train`, `average`, `evaluate` and `prepare`; config.yaml of the run says where the data are. If
something is missing, the page leaves it out and says why. Each model translates a few sentences on the CPU. The page
contains sentences of your test sets: consider this before you share it. The same input gives exactly the same file."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report about the runs given as arguments."""
    parser = cli.parser(
        "report", _DESCRIPTION, "python -m transformer_mt.report runs/demo_en_de runs/other --output report.html"
    )
    parser.add_argument(
        "runs",
        metavar="RUN_DIR",
        type=Path,
        nargs="+",
        help="the directory of a run or of a model; the first is the baseline",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        required=True,
        help="the page to write, a .html; an earlier page of this command is replaced",
    )
    parser.add_argument(
        "--sentence",
        metavar="TEXT",
        action="append",
        default=[],
        help="translate this sentence and show its attention; may be repeated (default: three sentences of a test set)",
    )
    arguments = parser.parse_intermixed_args(argv)
    check(arguments.output, {"html": [MARK.encode()]})
    if not arguments.output.parent.is_dir():
        raise UserError(f"{arguments.output}: the directory {arguments.output.parent} does not exist; create it first")
    if any(not sentence.strip() for sentence in arguments.sentence):
        parser.error("--sentence: the text is blank")
    report = gather(arguments.runs, arguments.sentence)
    page = page_of(report).encode("utf-8", "replace")  # the path of a run may contain bytes that are not UTF-8
    write_whole(arguments.output, page)
    print(f"{cli.shown(arguments.output)}: {counted(len(report.runs), 'run')}, {len(page) / 1e6:.2f} MB")
    return 0


def gather(paths: Sequence[Path], sentences: Sequence[str]) -> Report:
    """Read the content of the page. Translates the sentences; if there are none, some sentences of a test set."""
    notes: Notes = {section: [] for section in SECTIONS}
    runs = open_runs(paths, notes)
    tests = gather_tests(runs, notes)
    shown = translate(runs, list(dict.fromkeys(sentences)) or choose(tests, runs), notes)
    return Report(runs, tests, shown, notes)


if __name__ == "__main__":
    sys.exit(cli.run(main))
