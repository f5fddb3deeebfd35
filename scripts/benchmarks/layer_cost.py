"""Measures the cost of a layer for different lengths of a sentence: table 1 of Vaswani et al. 2017.

    python scripts/benchmarks/layer_cost.py [--width D] [--window R] [--kernel K] [--threads N] [--out FOLDER]

Four layers of the same width read one sentence of n words, for n from 32 to 2,048: self-attention, a recurrence (GRU),
a gated convolution, and self-attention to the R nearest words on each side. PyTorch's FlopCounterMode counts the
operations of matrix products, including the linear maps of attention; a multiplication and an addition are two
operations. Times are medians of the forward pass in fp32 on a CPU. Prints a table in Markdown; with --out it also
writes layer_cost.json and layer_cost.png.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from transformer_mt.kernels.packed_attention import Near
from transformer_mt.models.attention import MultiHeadAttention, Padded
from transformer_mt.models.convolutional import GatedConvolution
from transformer_mt.models.rnn import Recurrence
from transformer_mt.reporting import picture_file
from transformer_mt.terminal import cli

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
HEADS = 8
# Operations of a layer, steps that wait for each other, and the longest path between two words: table 1 of the paper.
PAPER = {
    "self-attention": ("n² d", "1", "1"),
    "recurrent": ("n d²", "n", "n"),
    "convolutional": ("k n d²", "1", "n / k"),
    "restricted self-attention": ("r n d", "1", "n / r"),
}

Layer = Callable[[Tensor], object]
"""Reads 1nD."""


@dataclass(frozen=True)
class Cost:
    """Of one layer and one length."""

    layer: str
    length: int
    operations: int
    milliseconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; with --out, also write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", metavar="D", type=int, default=512, help="width of the layers (default: 512)")
    parser.add_argument("--window", metavar="R", type=int, default=8, help="window of attention (default: 8)")
    parser.add_argument("--kernel", metavar="K", type=int, default=3, help="kernel of the convolution (default: 3)")
    parser.add_argument("--threads", metavar="N", type=int, default=1, help="threads of the CPU (default: 1)")
    parser.add_argument("--lengths", metavar="n", type=int, nargs="+", default=LENGTHS, help="numbers of words")
    parser.add_argument("--repeats", metavar="N", type=int, default=7, help="timed passes for each (default: 7)")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="write JSON and picture to this folder")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    layers = build_layers(arguments.width, arguments.window, arguments.kernel)
    with torch.inference_mode():
        costs = [
            measured(name, layer, torch.randn(1, n, arguments.width), arguments.repeats)
            for n in arguments.lengths
            for name, layer in layers.items()
        ]
    print(table(costs))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        settings = {"width": arguments.width, "window": arguments.window, "kernel": arguments.kernel}
        report = settings | {
            "threads": arguments.threads,
            "torch": torch.__version__,
            "costs": list(map(asdict, costs)),
        }
        (arguments.out / "layer_cost.json").write_text(json.dumps(report, indent=1) + "\n")
        draw(costs, arguments.out / "layer_cost.png")
    return 0


def build_layers(width: int, window: int, kernel_width: int) -> dict[str, Layer]:
    """The layers of the models, by the names of `PAPER`."""
    attention = MultiHeadAttention(width, HEADS).eval()
    recurrence = Recurrence("gru", 1, width, width, 0.0).eval()
    convolution = GatedConvolution(width, kernel_width, 0.0).eval()

    def everything(x_1nD: Tensor) -> Tensor:
        see = Padded(torch.ones(1, 1, 1, x_1nD.shape[1], dtype=torch.bool))
        return attention(x_1nD, see)

    def near(x_1nD: Tensor) -> Tensor:
        see = Near(torch.ones(x_1nD.shape[:2], dtype=torch.bool), window, causal=False)
        return attention(x_1nD, see)

    def recurrent(x_1nD: Tensor) -> object:
        return recurrence(x_1nD[None], torch.zeros(1, 1, 1, width))

    return dict(zip(PAPER, (everything, recurrent, convolution, near), strict=True))


def measured(name: str, layer: Layer, x_1nD: Tensor, repeats: int) -> Cost:
    """The operations of one pass, and the median time of some after it."""
    with FlopCounterMode(display=False) as counter:
        layer(x_1nD)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        layer(x_1nD)
        times.append(time.perf_counter() - start)
    return Cost(name, x_1nD.shape[1], counter.get_total_flops(), 1000 * statistics.median(times))


def table(costs: Sequence[Cost]) -> str:
    """In Markdown: a row for each layer, with millions of operations and milliseconds for each length."""
    lengths = sorted({cost.length for cost in costs})
    head = ["layer", "operations", "steps", "path", *(f"n = {n:,}" for n in lengths)]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, paper in PAPER.items():
        by_length = {cost.length: cost for cost in costs if cost.layer == name}
        cells = [f"{by_length[n].operations / 1e6:,.0f} M, {by_length[n].milliseconds:.1f} ms" for n in lengths]
        lines.append(f"| {' | '.join([name, *paper, *cells])} |")
    return "\n".join(lines)


def draw(costs: Sequence[Cost], path: Path) -> None:
    """Write the picture as PNG. Raises UserError without matplotlib."""
    picture_file.write(path, lambda: figure_of(costs))


def figure_of(costs: Sequence[Cost]) -> "Figure":
    """Draw operations and times over the length, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, what in zip(figure.subplots(1, 2), ("operations", "milliseconds"), strict=True):
        for name in PAPER:
            own = [cost for cost in costs if cost.layer == name]
            axes.plot([cost.length for cost in own], [getattr(cost, what) for cost in own], marker="o", label=name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set(xlabel="words of the sentence", ylabel=what)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize="small")
    return figure


if __name__ == "__main__":
    sys.exit(cli.run(main))
