"""Draws `plot positions`, `plot masks`, `plot schedule` and `plot curves`, and reads log.jsonl for the curves.

T positions  D model width
"""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import ValidationError, create_model
from torch import Tensor

from transformer_mt.base.errors import UserError
from transformer_mt.base.languages import PAD, UNK
from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.models.embeddings import sinusoidal
from transformer_mt.models.layouts import Sentences, whole_mask
from transformer_mt.reporting.picture_file import Command, Picture, new_figure
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.training_settings import VALIDATION_METRICS
from transformer_mt.storage.files import read_regular
from transformer_mt.storage.records import Count, Drawn, Record
from transformer_mt.terminal import cli
from transformer_mt.training.optimization import learning_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POSITIONS = 4096  # the dot products of all pairs then take 67 MB
MOST_POINTS = 2000  # of a line: more would not be visible
DRAWN = ("loss", "nll", "valid_nll", "valid_bleu", "learning_rate")
"""The fields of log.jsonl that `curves` draws, in one panel each."""


def _add_positions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--positions", metavar="T", type=int, default=100, help="number of positions (default: 100)")
    parser.add_argument("--width", metavar="D", type=int, default=128, help="number of dimensions (default: 128)")


def _positions(arguments: argparse.Namespace) -> Picture:
    length, width = arguments.positions, arguments.width
    if not 1 <= length <= MOST_POSITIONS or not 2 <= width <= MOST_POSITIONS or width % 2:
        raise UserError(
            f"--positions must be from 1 to {MOST_POSITIONS}, and --width an even number from 2 to {MOST_POSITIONS}: "
            "a picture of more would be unreadable"
        )
    table_TD = sinusoidal(length, width).numpy()
    return Picture(lambda: positions_figure(table_TD), f"{length} positions of {width} dimensions")


def positions_figure(table_TD: FloatArray) -> "Figure":
    """Draw the encodings as an image, four of their dimensions as curves, and the dot products of all positions."""
    length, width = table_TD.shape
    figure = new_figure(13, 4)
    image, curves, products = figure.subplots(1, 3)
    largest = np.abs(table_TD).max()
    shown = image.imshow(table_TD, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
    image.set(xlabel="dimension", ylabel="position", title="sines and cosines in turn")
    figure.colorbar(shown, ax=image)
    for dimension in sorted({min(width - 1, width * part // 16) for part in (1, 2, 4, 6)}):
        curves.plot(range(length), table_TD[:, dimension], label=f"dimension {dimension}")
    curves.set(xlabel="position", title="four dimensions")
    curves.legend(fontsize="small", loc="upper right")
    shown = products.imshow(table_TD @ table_TD.T, cmap="viridis")
    products.set(xlabel="position", ylabel="position", title="dot products of two positions")
    figure.colorbar(shown, ax=products)
    return figure


POSITIONS = Command(
    "Draws the sinusoids of Vaswani et al. 2017: an image of positions and dimensions, four dimensions as curves, and\n"
    "the dot products of all pairs of positions.",
    "positions --output positions.png",
    _add_positions,
    _positions,
)


def _add_masks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--length", metavar="T", type=int, default=8, help="number of positions (default: 8)")
    parser.add_argument("--padding", metavar="N", type=int, default=2, help="how many are padding (default: 2)")
    parser.add_argument("--window", metavar="R", type=int, default=2, help="window of the last two masks (default: 2)")


def _masks(arguments: argparse.Namespace) -> Picture:
    """Return the masks TT of attention that the Transformer makes for a sentence."""
    if not 0 <= arguments.padding < arguments.length <= 100 or arguments.window < 1:
        raise UserError("--length must be from 1 to 100, --padding less than --length, and --window at least 1")
    length, padding, window = arguments.length, arguments.padding, arguments.window
    sentence = Sentences(torch.tensor([[UNK] * (length - padding) + [PAD] * padding]))
    masks = {
        "encoder and cross-attention": sentence.everywhere(),
        "decoder": sentence.backwards(),
        f"encoder, window {window}": sentence.everywhere(window),
        f"decoder, window {window}": sentence.backwards(window),
    }
    drawn = {name: whole_mask(see).expand(1, 1, length, length)[0, 0] for name, see in masks.items()}
    return Picture(lambda: masks_figure(drawn), "; ".join(drawn))


def masks_figure(masks: Mapping[str, Tensor]) -> "Figure":
    """Draw each mask TT: a cell is dark if the row's position may attend to the column's."""
    figure = new_figure(2.6 * len(masks), 3)
    for axes, (name, mask_TT) in zip(figure.subplots(1, len(masks), squeeze=False)[0], masks.items(), strict=True):
        axes.imshow(mask_TT.float().numpy(), cmap="Blues", vmin=0.0, vmax=1.0)
        axes.set_xticks(range(mask_TT.shape[1]))
        axes.set_yticks(range(mask_TT.shape[0]))
        axes.tick_params(length=0, labelsize=7)
        axes.set(xlabel="sees position", ylabel="position", title=name)
    return figure


MASKS = Command(
    "Draws which positions may attend to which, for a sentence with padding at its end: the padding mask (of the\n"
    "encoder and of cross-attention), the causal mask of the decoder's self-attention, and the masks of both\n"
    "self-attentions with a window (model.attention_window).",
    "masks --output masks.png",
    _add_masks,
    _masks,
)


Line = tuple[Sequence[float], Sequence[float | None]]
"""The x and the y values. None is a gap."""


class LogLine(Record):
    """A line of log.jsonl about training updates or a validation. None means that a number was not finite."""

    step: Count
    loss: Drawn | None = None
    nll: Drawn | None = None
    learning_rate: Drawn | None = None
    gradient_norm: Drawn | None = None
    tokens_per_second: Drawn | None = None
    skipped: Count | None = None
    split: Count | None = None
    tokens: Count | None = None
    seconds: Drawn | None = None
    valid_perplexity: float | None = None
    valid_seconds: Drawn | None = None
    best: bool = False


VALIDATION_CURVES = {f"valid_{metric}": shown.title for metric, shown in VALIDATION_METRICS.items()}
CURVES = {
    "loss": "loss in training, with label smoothing (nats per target token)",
    "nll": "negative log-likelihood in training (nats per target token)",
    **VALIDATION_CURVES,
    "learning_rate": "learning rate",
    "tokens_per_second": "target tokens per second",
    "gradient_norm": "norm of the gradient, before clipping",
    "skipped": "updates that were skipped so far",
    "split": "micro-batches that were split so far",
}
"""The curves that are drawn from the log, by the name of the field."""
_SCORES: dict[str, Any] = dict.fromkeys(VALIDATION_CURVES, (Drawn | None, None))
LOG_LINE = create_model("LogLine", __base__=LogLine, **_SCORES)
"""A line with a field for each metric of the validation."""


def read_log(run: Path, fields: Iterable[str]) -> tuple[list[LogLine], list[str]]:
    """Return the lines of a run's log, and the errors of unreadable lines. Ignores an incomplete line at the end.

    Raises UserError if the log cannot be read, or if no line has a number in one of these fields.
    """
    path = run / "log.jsonl"
    try:
        complete = read_regular(path).split(b"\n")[:-1]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give the directory of a run, which `train` writes") from None
    records, faults = list[LogLine](), list[str]()
    for number, line in enumerate(complete, start=1):
        try:
            records.append(LOG_LINE.model_validate_json(line))
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            field = "".join(f"{key}: " for key in fault["loc"])
            faults.append(f"{path}, line {number}: {field}{fault['msg']}")
    if not faults and not any(getattr(record, field) is not None for record in records for field in fields):
        raise UserError(f"{path} has no update yet; wait until training.log_every updates are done")
    return records, faults


def lines_of(records: Sequence[LogLine], fields: Iterable[str]) -> dict[str, Line]:
    """Return a line over the updates for each of these fields that is in the log."""
    found: dict[str, Line] = {}
    for field in fields:
        if there := [record for record in records if field in record.model_fields_set]:
            found[field] = [record.step for record in there], [getattr(record, field) for record in there]
    return found


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
    """Return a picture with a panel for each field of the log, and in it a line for each name."""
    drawn = {CURVES[field]: lines for field, lines in panels.items()}
    return Picture(lambda: lines_figure(drawn), summary, "".join(names))


def lines_figure(panels: Mapping[str, Mapping[str, Line]]) -> "Figure":
    """Draw a panel for each quantity, with lines over the updates. The legend is in the first panel, which has all.

    The panels are in rows, and the figure has the proportions of a slide (16:9).
    """
    columns = math.ceil(math.sqrt(len(panels)))
    width = 4.5 * max(columns, 2)
    figure = new_figure(width, width * 9 / 16)
    for number, (name, lines) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(math.ceil(len(panels) / columns), columns, number)
        for label, line in lines.items():
            draw_line(axes, line, label=label)
        axes.set(xlabel="update")
        axes.set_title(name.replace(" (", "\n("), fontsize="medium")
        axes.grid(alpha=0.3)
    # parse_math=False, because a name may contain a dollar sign.
    for text in figure.axes[0].legend(fontsize="small").get_texts():
        text.set_parse_math(False)
    return figure


def draw_line(axes: "Axes", line: Line, **look: Any) -> None:
    """Draw a line with its gaps; `look` are arguments of matplotlib's `plot`.

    Points have a marker if there are few of them, and if they have no neighbour, because a line would not show them.
    """
    values_N = np.array(line[1], dtype=float)
    there_N = np.isfinite(values_N)
    alone_N = there_N & ~np.append(there_N[1:], False) & ~np.append(False, there_N[:-1])
    axes.plot(line[0], values_N, marker="o", markersize=4, markevery=alone_N | (len(values_N) < 20), **look)


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
