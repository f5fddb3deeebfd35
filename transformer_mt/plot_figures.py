"""Commands of `plot` that need no sentence: positions, masks, schedule, curves, lengths."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.decoding.loading import load_model
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.errors import PictureError
from transformer_mt.evaluation import figures, heat_map
from transformer_mt.evaluation.figures import Line
from transformer_mt.kernels.near_attention import Near
from transformer_mt.models.attention import causal_mask
from transformer_mt.models.positions import LearnedPositions, sinusoidal
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.json_text import parse_json
from transformer_mt.terminal import cli
from transformer_mt.training.optimization import learning_rate

MOST_POINTS = 2000  # of a line: more are not seen


def positions(argv: Sequence[str]) -> int:
    """Draw encodings of positions: sinusoids, or those that a model has learned."""
    parser = _parser(
        "positions",
        "Draws encodings of positions: as an image of positions and dimensions, four dimensions as curves, and the\n"
        "dot product of each two positions. Without a model these are the sinusoids of Vaswani et al. 2017: sine\n"
        "and cosine side by side, PE(pos, 2i) and PE(pos, 2i+1), as in the paper. With --halves all sines stand\n"
        "before all cosines, as in tensor2tensor and fairseq: the same numbers in another order.",
        "positions --output positions.png",
    )
    parser.add_argument("model", metavar="MODEL_DIR", type=Path, nargs="?", help="draw what this model has learned")
    parser.add_argument("--positions", metavar="T", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--width", metavar="D", type=int, help="of sinusoids (default: 128)")
    parser.add_argument("--halves", action="store_true", help="all sines before all cosines")
    arguments = parser.parse_args(argv)
    if arguments.model is not None and (arguments.width or arguments.halves):
        parser.error("--width and --halves are for sinusoids, and a model has a width and an order of its own")
    width = 128 if arguments.width is None else arguments.width
    if arguments.positions < 1 or width < 2 or width % 2:
        parser.error("--positions is at least 1, and --width is an even number, at least 2")
    heat_map.check(arguments.output)
    if arguments.model is not None:
        table_TD, title = _learned(arguments.model)[: arguments.positions], "learned"
    else:
        table_TD, title = sinusoidal(arguments.positions, width), "sines and cosines in turn"
        if arguments.halves:
            table_TD, title = torch.cat([table_TD[:, 0::2], table_TD[:, 1::2]], dim=1), "sines, then cosines"
    heat_map.write(arguments.output, lambda: figures.of_positions(table_TD, title))
    print(f"{cli.shown(arguments.output)}: {len(table_TD)} positions of {table_TD.shape[1]} dimensions, {title}")
    return 0


def masks(argv: Sequence[str]) -> int:
    """Draw who may see whom."""
    parser = _parser(
        "masks",
        "Draws who may see whom in self-attention, for a sentence with padding behind it: the mask of padding, the\n"
        "causal mask of the decoder, both together, and both with a window (model.attention_window).",
        "masks --output masks.png",
    )
    parser.add_argument("--length", metavar="T", type=int, default=8, help="positions (default: 8)")
    parser.add_argument("--padding", metavar="N", type=int, default=2, help="how many are padding (default: 2)")
    parser.add_argument("--window", metavar="R", type=int, default=2, help="of the last two masks (default: 2)")
    arguments = parser.parse_args(argv)
    if not 0 <= arguments.padding < arguments.length <= 100 or arguments.window < 1:
        parser.error("--length is 1 to 100, --padding is less than it, and --window is at least 1")
    heat_map.check(arguments.output)
    drawn = masks_of(arguments.length, arguments.padding, arguments.window)
    heat_map.write(arguments.output, lambda: figures.of_masks(drawn))
    print(f"{cli.shown(arguments.output)}: {', '.join(drawn)}")
    return 0


def masks_of(length: int, padding: int, window: int) -> dict[str, Tensor]:
    """The masks TT of self-attention, by name, as the models have them."""
    real_1T = (torch.arange(length) < length - padding)[None]
    real_TT, causal_TT = real_1T.expand(length, length), causal_mask(length, torch.device("cpu"))
    return {
        "padding": real_TT,
        "causal": causal_TT,
        "padding and causal": real_TT & causal_TT,
        f"window of {window}": Near(real_1T, window, causal=False).whole()[0, 0],
        f"causal, window of {window}": Near(real_1T, window, causal=True).whole()[0, 0],
    }


def schedule(argv: Sequence[str]) -> int:
    """Draw the learning rate of configurations."""
    parser = _parser(
        "schedule",
        "Draws the learning rate over the updates of one configuration or more. A key=value changes all of them.",
        "schedule configs/demo_en_de.yaml configs/wmt14_en_de_base.yaml --output schedule.png",
    )
    parser.add_argument("configs", metavar="CONFIG", nargs="+", help="a configuration, or key=value")
    arguments = parser.parse_args(argv)
    overrides = [word for word in arguments.configs if "=" in word]
    paths = [Path(word) for word in arguments.configs if "=" not in word]
    if not paths:
        parser.error("name at least one configuration")
    heat_map.check(arguments.output)
    lines: dict[str, Line] = {}
    for path in paths:
        settings = load_config(path, overrides).training
        steps = range(1, settings.max_steps + 1, math.ceil(settings.max_steps / MOST_POINTS))
        lines[str(path)] = steps, [learning_rate(step, settings) for step in steps]
    heat_map.write(arguments.output, lambda: figures.of_lines({"learning rate": lines}), "".join(lines))
    print(f"{cli.shown(arguments.output)}: {', '.join(map(cli.shown, paths))}")
    return 0


CURVES = {
    "loss": "loss",
    "nll of a target piece": "nll",
    "nll on the validation set": "valid_nll",
    "BLEU on the validation set": "valid_bleu",
    "learning rate": "learning_rate",
}
"""What `curves` draws, by the title of its panel: the name in log.jsonl."""


def curves(argv: Sequence[str]) -> int:
    """Draw how runs have learnt."""
    parser = _parser(
        "curves",
        "Draws from log.jsonl of one run or more, over the updates: the loss, the negative log-likelihood (nll) in\n"
        "training and on the validation set, BLEU there, and the learning rate. A run may still be going on.",
        "curves runs/demo_en_de runs/other --output curves.png",
    )
    parser.add_argument("runs", metavar="RUN_DIR", type=Path, nargs="+", help="the directory of a run")
    arguments = parser.parse_args(argv)
    heat_map.check(arguments.output)
    records = {str(run): _records(run) for run in arguments.runs}
    panels: dict[str, dict[str, Line]] = {}
    for title, key in CURVES.items():
        for run, lines in records.items():
            points = [(line["step"], line[key]) for line in lines if key in line]
            if points:
                panels.setdefault(title, {})[run] = tuple(zip(*points, strict=True))  # type: ignore[assignment]
    heat_map.write(arguments.output, lambda: figures.of_lines(panels), "".join(records))
    print(f"{cli.shown(arguments.output)}: {', '.join(panels)}")
    return 0


def lengths(argv: Sequence[str]) -> int:
    """Draw how long the sentences of a prepared corpus are."""
    parser = _parser(
        "lengths",
        "Draws how long the training sentences are that `prepare` has written, in subword pieces with the end of the\n"
        "sentence: of each side by itself, and of both sides of a pair.",
        "lengths configs/demo_en_de.yaml --output lengths.png",
    )
    parser.add_argument("config", metavar="CONFIG", type=Path, help="a configuration")
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="change a setting")
    arguments = parser.parse_args(argv)
    heat_map.check(arguments.output)
    config = load_config(arguments.config, arguments.overrides)
    corpus = EncodedCorpus.load(Path(config.data_dir) / "train")
    sides = {"source": np.diff(corpus.source.offsets), "target": np.diff(corpus.target.offsets)}
    heat_map.write(arguments.output, lambda: figures.of_lengths(sides))
    means = ", ".join(f"{side.mean():.1f} {name} pieces" for name, side in sides.items())
    print(f"{cli.shown(arguments.output)}: {len(corpus):,} pairs, in the mean {means}")
    return 0


def _records(run: Path) -> list[dict[str, float]]:
    """The lines of the log that have numbers. Raises PictureError without such."""
    path = run / "log.jsonl"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise PictureError(f"{path}: {reason}; name the directory of a run, which `train` writes") from None
    whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]  # the last may be half written
    records = [_record(line, f"{path}, line {number}") for number, line in enumerate(whole, start=1)]
    if not any(key in record for record in records for key in CURVES.values()):
        raise PictureError(f"{path}: has no update yet; wait until training.log_every updates are done")
    return records


def _record(line: str, place: str) -> dict[str, float]:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise PictureError(f"{place}: {error}; `train` did not write this") from None
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        raise PictureError(f"{place}: says nothing of a step; `train` did not write this")
    return record


def _learned(model_dir: Path) -> Tensor:
    """The table TD of learned positions; of the source, if source and target have their own."""
    model = load_model(model_dir, "cpu", "torch", "fp32", "none", workers=1)
    assert isinstance(model.engine, TorchEngine)
    for module in model.engine.model.modules():
        if isinstance(module, LearnedPositions):
            return module.table_TD.detach()
    raise PictureError(
        f"{model_dir}: the model has learned no positions; leave it out to draw sinusoids, or train one with "
        "model.positions=learned"
    )


def _parser(name: str, description: str, example: str) -> argparse.ArgumentParser:
    parser = cli.parser(f"plot {name}", description, f"python -m transformer_mt.plot {example}")
    parser.add_argument("--output", metavar="FILE", type=Path, required=True, help="the picture: a .png, .svg or .pdf")
    return parser
