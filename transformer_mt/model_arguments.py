"""The arguments that say which model runs, and on what: of translating and of scoring."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL_DIR, --ensemble, --device, --dtype, --quantize, --workers and --engine."""
    parser.add_argument("model", metavar="MODEL_DIR", type=Path, help="as runs/<name>/model")
    parser.add_argument(
        "--ensemble",
        metavar="MODEL_DIR",
        type=Path,
        action="append",
        default=[],
        help="another model of the same vocabulary: the mean of their probabilities decides; may be repeated",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--dtype", choices=["fp32", "bf16", "fp16"], default="fp32", help="of matrix products")
    parser.add_argument("--quantize", choices=["none", "int8"], default="none", help="weights, on a CPU")
    parser.add_argument(
        "--workers", metavar="N", type=int, default=0, help="processes on a CPU; 0 leaves it to the engine"
    )
    parser.add_argument(
        "--engine", choices=["torch", "ctranslate2"], default="torch", help="ctranslate2 runs what `export` wrote"
    )


def model_dirs(arguments: argparse.Namespace) -> list[Path]:
    """All that were named."""
    return [arguments.model, *arguments.ensemble]
