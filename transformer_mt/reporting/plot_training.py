"""`plot schedule` and `plot curves`: draw numbers of training."""

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transformer_mt.base.errors import UserError
from transformer_mt.reporting import figures
from transformer_mt.reporting.figures import Line
from transformer_mt.reporting.log_lines import CURVES, lines_of, read_log
from transformer_mt.reporting.picture_command import Command, Picture
from transformer_mt.settings.reading import load_config
from transformer_mt.terminal import cli
from transformer_mt.training.optimization import learning_rate

MOST_POINTS = 2000  # of a line: more would not be visible
DRAWN = ("loss", "nll", "valid_nll", "valid_bleu", "learning_rate")
"""The fields of log.jsonl that `curves` draws, in one panel each."""


def _add_configs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("configs", metavar="CONFIG", nargs="+", help="a configuration, or key=value")


def _schedule(arguments: argparse.Namespace) -> Picture:
    overrides = [word for word in arguments.configs if "=" in word]
    paths = [Path(word) for word in arguments.configs if "=" not in word]
    if not paths:
        raise UserError("there is no configuration: give at least one, such as configs/demo_en_de.yaml")
    lines: dict[str, Line] = {}
    for path in paths:
        settings = load_config(path, overrides).training
        steps = range(1, settings.max_steps + 1, math.ceil(settings.max_steps / MOST_POINTS))
        lines[str(path)] = steps, [learning_rate(step, settings) for step in steps]
    return _over_updates({"learning_rate": lines}, list(lines), ", ".join(map(cli.shown, paths)))


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN_DIR", type=Path, nargs="+", help="the directory of a run")


def _curves(arguments: argparse.Namespace) -> Picture:
    panels: dict[str, dict[str, Line]] = {key: {} for key in DRAWN}
    for run in arguments.runs:
        records, faults = read_log(run, DRAWN)
        if faults:
            raise UserError(f"{faults[0]}; `train` did not write this line: delete or correct it")
        for key, line in lines_of(records, DRAWN).items():
            panels[key][str(run)] = line
    panels = {key: lines for key, lines in panels.items() if lines}
    return _over_updates(panels, list(map(str, arguments.runs)), "; ".join(CURVES[key] for key in panels))


def _over_updates(panels: Mapping[str, Mapping[str, Line]], names: Sequence[str], summary: str) -> Picture:
    """Return a picture with a panel for each field of the log, and in it a line for each name.

    In the file of numbers, the arrays of the first name end in _1, those of the second name in _2, and so on.
    """
    numbers: dict[str, NDArray[np.float64] | Sequence[str]] = {"names": names}
    for field, lines in panels.items():
        for name, (steps, values) in lines.items():
            key = f"{field}_{1 + names.index(name)}"
            numbers |= {f"{key}_updates": np.array(steps), key: np.array(values, dtype=float)}
    drawn = {CURVES[field]: lines for field, lines in panels.items()}
    return Picture(lambda: figures.of_lines(drawn), numbers, summary, "".join(names))


SCHEDULE = Command(
    "Draws the learning rate of one or more configurations over the updates. A key=value changes all of them.",
    "schedule configs/demo_en_de.yaml configs/wmt14_en_de_base.yaml --output schedule.png",
    _add_configs,
    _schedule,
)
CURVES_OF_RUNS = Command(
    "Draws numbers in log.jsonl of one or more runs over the updates: the loss, the negative log-likelihood in\n"
    "training and on the validation set, validation BLEU, and the learning rate. A run may still be training.",
    "curves runs/demo_en_de runs/other --output curves.png",
    _add_runs,
    _curves,
)
