"""Scores a file of translations by BLEU, chrF and TER, with sacreBLEU's signatures.

    python scripts/evaluate_bleu.py HYPOTHESIS REFERENCE [REFERENCE …] [--language CODE] [--json FILE]

Files contain plain, detokenised UTF-8 text; line n of one file belongs to line n of the others. The script calls
`python -m transformer_mt.evaluate` and has the same options.
"""

import argparse
import sys
from collections.abc import Sequence

from check_requirements import stop

try:
    from transformer_mt import evaluate
    from transformer_mt.terminal import cli
except ModuleNotFoundError as error:
    stop(error)


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line for each metric; with --json FILE, write the scores as JSON, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hypothesis")
    parser.add_argument("reference", nargs="+")
    files, options = parser.parse_known_args(argv)
    return evaluate.main(["--hypothesis", files.hypothesis, "--reference", *files.reference, *options])


if __name__ == "__main__":
    sys.exit(cli.run(main))
