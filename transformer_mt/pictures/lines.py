"""`plot schedule` and `plot curves`: lines over the updates of training."""

import argparse
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from transformer_mt.errors import PictureError
from transformer_mt.pictures import command, figures
from transformer_mt.pictures.command import Picture
from transformer_mt.pictures.figures import Line
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.files import read_regular
from transformer_mt.storage.records import CURVES, LogLine
from transformer_mt.terminal import cli
from transformer_mt.training.optimization import learning_rate

MOST_POINTS = 2000  # of a line: more are not seen
DRAWN = ("loss", "nll", "valid_nll", "valid_bleu", "learning_rate")
"""What `curves` draws of log.jsonl, a panel for each."""


def schedule(argv: Sequence[str]) -> int:
    """Draw the learning rate of configurations."""
    parser = command.parser(
        "schedule",
        "Draws the learning rate over the updates of one configuration or more. A key=value changes all of them.",
        "schedule configs/demo_en_de.yaml configs/wmt14_en_de_base.yaml --output schedule.png",
    )
    parser.add_argument("configs", metavar="CONFIG", nargs="+", help="a configuration, or key=value")
    return command.run("schedule", parser, argv, partial(_schedule, parser))


def _schedule(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Picture:
    overrides = [word for word in arguments.configs if "=" in word]
    paths = [Path(word) for word in arguments.configs if "=" not in word]
    if not paths:
        parser.error("name at least one configuration")
    lines: dict[str, Line] = {}
    for path in paths:
        settings = load_config(path, overrides).training
        steps = range(1, settings.max_steps + 1, math.ceil(settings.max_steps / MOST_POINTS))
        lines[str(path)] = steps, [learning_rate(step, settings) for step in steps]
    return _picture({"learning_rate": lines}, list(lines), ", ".join(map(cli.shown, paths)))


def curves(argv: Sequence[str]) -> int:
    """Draw how runs have learnt."""
    parser = command.parser(
        "curves",
        "Draws from log.jsonl of one run or more, over the updates: the loss, the negative log-likelihood in\n"
        "training and on the validation set, BLEU there, and the learning rate. A run may still be going on.",
        "curves runs/demo_en_de runs/other --output curves.png",
    )
    parser.add_argument("runs", metavar="RUN_DIR", type=Path, nargs="+", help="the directory of a run")
    return command.run("curves", parser, argv, _curves)


def _curves(arguments: argparse.Namespace) -> Picture:
    records = {str(run): _records(run) for run in arguments.runs}
    panels: dict[str, dict[str, Line]] = {}
    for key in DRAWN:
        for run, lines in records.items():
            points = [(line.step, getattr(line, key)) for line in lines if key in line.model_fields_set]
            if points:
                panels.setdefault(key, {})[run] = tuple(zip(*points, strict=True))  # type: ignore[assignment]
    return _picture(panels, list(records), "; ".join(CURVES[key] for key in panels))


def _picture(panels: Mapping[str, Mapping[str, Line]], names: Sequence[str], said: str) -> Picture:
    """A panel for each field of the log, with the lines of the names that have it.

    The numbers of the first name's lines end in 1, those of the second name's in 2, and so on.
    """
    numbers: dict[str, NDArray[np.float64] | Sequence[str]] = {"names": names}
    for field, lines in panels.items():
        for name, (steps, values) in lines.items():
            key = f"{field}_{1 + names.index(name)}"
            numbers |= {f"{key}_updates": np.array(steps), key: np.array(values, dtype=float)}
    drawn = {CURVES[field]: lines for field, lines in panels.items()}
    return Picture(lambda: figures.of_lines(drawn), numbers, said, "".join(names))


def _records(run: Path) -> list[LogLine]:
    """The lines of the log that have numbers. Raises PictureError without such."""
    path = run / "log.jsonl"
    try:
        whole = read_regular(path).split(b"\n")[:-1]  # the last may be half written
    except OSError as error:
        raise PictureError(f"{path}: {error.strerror}; name the directory of a run, which `train` writes") from None
    records = [_record(line, f"{path}, line {number}") for number, line in enumerate(whole, start=1)]
    if not any(record.model_fields_set.intersection(DRAWN) for record in records):
        raise PictureError(f"{path}: has no update yet; wait until training.log_every updates are done")
    return records


def _record(line: bytes, place: str) -> LogLine:
    try:
        return LogLine.model_validate_json(line)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        field = "".join(f"{key}: " for key in fault["loc"])
        raise PictureError(f"{place}: {field}{fault['msg']}; `train` did not write this") from None
