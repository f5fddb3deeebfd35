"""`transformer-mt <stage> …` is `python -m transformer_mt.<stage> …`."""

import importlib
import sys

from transformer_mt import cli

STAGES = {
    "prepare": "text becomes token ids on disk",
    "train": "token ids become checkpoints",
    "average": "checkpoints become a model",
    "translate": "lines become translations",
    "score": "pairs become log-probabilities",
    "export": "a model becomes a directory of another program",
    "evaluate": "translations become scores",
    "plot": "attention becomes a picture",
}


def main() -> int:
    """Run the stage that the first argument names; the rest is its own."""
    if len(sys.argv) < 2 or sys.argv[1] not in STAGES:
        lines = [f"  {stage:10} {purpose}" for stage, purpose in STAGES.items()]
        if sys.argv[1:] not in ([], ["-h"], ["--help"]):
            print(f"error: no such stage: {sys.argv[1]}", file=sys.stderr)
        print("usage: transformer-mt <stage> …, each with --help\n\n" + "\n".join(lines))
        return 0 if sys.argv[1:] in ([], ["-h"], ["--help"]) else 2
    stage = importlib.import_module(f"transformer_mt.{sys.argv[1]}")
    return cli.run(stage.main, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
