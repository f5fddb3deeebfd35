"""The stage `report`: writes one page of HTML about runs: what was trained, how it learnt, and how well it works."""

import sys
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.base.errors import UserError
from transformer_mt.base.wording import counted
from transformer_mt.reporting.page import MARK, page_of
from transformer_mt.reporting.picture_file import check
from transformer_mt.storage.files import write_whole
from transformer_mt.terminal import cli

_DESCRIPTION = """\
Reads one or more runs, and writes a page of HTML that any browser shows without a network: the settings and how they
differ, learning curves, scores of the test sets with paired tests, and translations.

Reads the files of `train`, `average`, `evaluate` and `prepare`; config.yaml of the run says where the data are. If
something is missing, the page leaves it out and says why. The page contains sentences of your test sets: consider this
before you share it. The same input gives exactly the same file."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report about the runs given as arguments."""
    parser = cli.parser(
        "report", _DESCRIPTION, "python -m transformer_mt.report runs/demo_en_de runs/other --output report.html"
    )
    about = "the directory of a run or of a model; the first is the baseline"
    parser.add_argument("runs", metavar="RUN_DIR", type=Path, nargs="+", help=about)
    about = "the page to write, a .html; an earlier page of this command is replaced"
    parser.add_argument("--output", metavar="FILE", type=Path, required=True, help=about)
    arguments = parser.parse_intermixed_args(argv)
    check(arguments.output, {"html": [MARK.encode()]})
    if not arguments.output.parent.is_dir():
        raise UserError(f"{arguments.output}: the directory {arguments.output.parent} does not exist; create it first")
    page = page_of(arguments.runs).encode("utf-8", "replace")  # the path of a run may contain bytes that are not UTF-8
    write_whole(arguments.output, page)
    print(f"{cli.shown(arguments.output)}: {counted(len(set(arguments.runs)), 'run')}, {len(page) / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
