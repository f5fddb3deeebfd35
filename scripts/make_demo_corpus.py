"""Writes the demo corpus: English sentences and their German translations, made by the grammar in demo_corpus/."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from check_requirements import stop
from demo_corpus.corpus import corpus

try:
    from transformer_mt.demo import OUTPUT, SIZES, write_corpus
    from transformer_mt.terminal import cli
except ModuleNotFoundError as error:
    stop(error)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too small; give at least 1")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Write the corpus and return 0. Raises UserError if the files cannot be written."""
    parser = argparse.ArgumentParser(
        description="Writes the demo corpus: files train, valid and test in English (.en) and German (.de).",
        epilog="example: python scripts/make_demo_corpus.py --output data/demo_corpus --train 2000",
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the folder to write to (default: %(default)s)")
    parser.add_argument(
        "--train", type=positive, default=SIZES["train"], help="pairs for training (default: %(default)s)"
    )
    parser.add_argument(
        "--valid", type=positive, default=SIZES["valid"], help="pairs for validation (default: %(default)s)"
    )
    parser.add_argument("--test", type=positive, default=SIZES["test"], help="pairs for testing (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the random sentences (default: %(default)s)")
    parser.add_argument(
        "--join",
        type=positive,
        default=1,
        metavar="N",
        help="join 1 to N statements into each sentence; 4 gives up to about 70 words (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    # Those of the test set are made first, so they are the same for every size of the training set.
    sizes = {"test": args.test, "valid": args.valid, "train": args.train}
    write_corpus(args.output, corpus(sum(sizes.values()), args.seed, args.join), sizes)
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
