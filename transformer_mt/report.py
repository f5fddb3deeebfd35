"""The stage `report`: runs become one page of HTML that shows what was trained, how it learnt and what it can do."""

import sys
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.base.errors import UserError
from transformer_mt.base.wording import counted
from transformer_mt.reporting.gathered import SECTIONS, Notes, open_runs
from transformer_mt.reporting.gathered_texts import choose, gather_corpora, gather_tests, translate
from transformer_mt.reporting.page import MARK, Report, page_of
from transformer_mt.reporting.picture_file import check
from transformer_mt.storage.files import write_whole
from transformer_mt.terminal import cli

_DESCRIPTION = """\
Reads one run or more, and writes a page of HTML that any browser shows, without a network: the settings and how they
differ, learning curves, scores of the test sets with paired tests, translations, attention of layers and heads to
choose, and the corpus.

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
        "--output",
        metavar="FILE",
        type=Path,
        required=True,
        help="the page, a .html; a file of this command is replaced",
    )
    parser.add_argument(
        "--sentence",
        metavar="TEXT",
        action="append",
        default=[],
        help="translate this sentence and show its attention; may be repeated (default: three of the test set)",
    )
    arguments = parser.parse_intermixed_args(argv)
    check(arguments.output, {"html": [MARK.encode()]})
    if not arguments.output.parent.is_dir():
        raise UserError(f"{arguments.output}: there is no directory {arguments.output.parent}; make it first")
    if any(not sentence.strip() for sentence in arguments.sentence):
        parser.error("--sentence: the text is blank")
    report = gather(arguments.runs, arguments.sentence)
    page = page_of(report).encode("utf-8", "replace")  # the path of a run need not be UTF-8
    write_whole(arguments.output, page)
    print(f"{cli.shown(arguments.output)}: {counted(len(report.runs), 'run')}, {len(page) / 1e6:.2f} MB")
    return 0


def gather(paths: Sequence[Path], sentences: Sequence[str]) -> Report:
    """Read all that the page says. The sentences are translated; without any, some of a test set."""
    notes: Notes = {section: [] for section in SECTIONS}
    runs = open_runs(paths, notes)
    tests = gather_tests(runs, notes)
    shown = translate(runs, list(dict.fromkeys(sentences)) or choose(tests, runs), notes)
    return Report(runs, tests, shown, gather_corpora(runs, notes), notes)


if __name__ == "__main__":
    sys.exit(cli.run(main))
