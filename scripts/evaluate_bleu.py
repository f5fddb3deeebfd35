"""Scores a file of translations by BLEU, chrF and TER, with sacreBLEU's signatures.

    python scripts/evaluate_bleu.py HYPOTHESIS REFERENCE [REFERENCE …] [--language CODE] [--json FILE]

Files are plain UTF-8 text, detokenised, and line n of one belongs to line n of the others. A file whose name ends in
.gz is unpacked.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from check_requirements import stop

try:
    from transformer_mt.evaluation.score_file import write_scores
    from transformer_mt.evaluation.scores import print_scores, score_files
    from transformer_mt.terminal import cli
except ModuleNotFoundError as error:
    stop(error)


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line for each metric, and write them as JSON if --json names a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hypothesis", type=Path)
    parser.add_argument("reference", type=Path, nargs="+")
    parser.add_argument(
        "--language",
        metavar="CODE",
        default="",
        help="the target language, such as zh or ja, which decides how BLEU splits text into words",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the scores to this file, too")
    arguments = parser.parse_args(argv)
    results = score_files(arguments.hypothesis, arguments.reference, arguments.language)
    print_scores(results)
    if arguments.json is not None:
        write_scores(arguments.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
