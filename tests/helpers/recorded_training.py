"""Trains as `train` does, slower, and writes down the pairs of each update: for processes that tests start."""

import json
import os
import sys
import time
from pathlib import Path

from transformer_mt import train
from transformer_mt.terminal import cli
from transformer_mt.training import loop

one_update = loop.one_update


def recorded(learner, batches, rate, step):
    """The first rank writes the step and the pairs of all ranks, sorted, because ranks share them in other ways."""
    time.sleep(float(os.environ["PAUSE"]))
    made = one_update(learner, batches, rate, step)
    pairs = sorted(pair for own in learner.ranks.gather(made.pairs.tolist()) for pair in own)
    if learner.ranks.is_first:
        with Path(os.environ["PAIRS"]).open("a") as file:
            file.write(json.dumps([step, pairs]) + "\n")
    return made


if __name__ == "__main__":
    loop.one_update = recorded
    sys.exit(cli.run(train.main))
