"""The arguments that say which model runs, and on what: of translating, of scoring and of evaluating."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.decoding.loading import Dtype, EngineName, Quantization


@dataclass(frozen=True)
class EngineOptions:
    """What runs a model, as Translator.load takes it."""

    device: str = "auto"
    engine: EngineName = "torch"
    dtype: Dtype = "fp32"
    quantize: Quantization = "none"
    workers: int = 0
    compile: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add MODEL_DIR and the arguments of the engine."""
    parser.add_argument("model", metavar="MODEL_DIR", type=Path, help="as runs/<name>/model")
    add_engine_arguments(parser)


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --ensemble, --device, --dtype, --quantize, --workers and --engine."""
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


def add_compile(parser: argparse.ArgumentParser) -> None:
    """Add --compile, which makes the search for translations faster; scoring has no search."""
    parser.add_argument(
        "--compile", action="store_true", help="compile once (about 1 min, cached): faster single lines and int8"
    )


def engine_options(arguments: argparse.Namespace) -> EngineOptions:
    """The values of the arguments that add_engine_arguments and add_compile added."""
    return EngineOptions(
        arguments.device,
        arguments.engine,
        arguments.dtype,
        arguments.quantize,
        arguments.workers,
        arguments.compile,
    )


def model_dirs(arguments: argparse.Namespace) -> list[Path]:
    """All that were named."""
    return [arguments.model, *arguments.ensemble]
