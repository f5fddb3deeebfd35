"""The arguments of translate, score and evaluate that choose the model, the engine and the device."""

import argparse
from dataclasses import fields
from pathlib import Path

from transformer_mt.decoding.loading import EngineOptions


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --ensemble, --device, --dtype, --quantize, --workers, --engine and --plain."""
    parser.add_argument(
        "--ensemble",
        metavar="MODEL_DIR",
        type=Path,
        action="append",
        default=[],
        help="another model with the same vocabulary, to use the mean of the models' probabilities. May be repeated",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument(
        "--dtype", choices=["fp32", "bf16", "fp16"], default="fp32", help="format of matrix products (default: fp32)"
    )
    parser.add_argument(
        "--quantize",
        choices=["none", "int8"],
        default="none",
        help="int8: multiply matrices of 8-bit integers, on a CPU (default: none)",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=int,
        default=0,
        help="number of processes on a CPU; 0, the default, lets the engine choose",
    )
    parser.add_argument(
        "--engine",
        choices=["torch", "ctranslate2"],
        default="torch",
        help="torch (the default) runs a model directory; ctranslate2 runs a directory that `export` wrote",
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="run the slow code that is easy to read instead of its faster versions, to compare the two",
    )


def engine_options(arguments: argparse.Namespace) -> EngineOptions:
    """Return the values of the arguments that add_engine_arguments added."""
    return EngineOptions(**{option.name: getattr(arguments, option.name) for option in fields(EngineOptions)})


def model_dirs(arguments: argparse.Namespace) -> list[Path]:
    """Return the directories of all models: MODEL_DIR, then those of --ensemble."""
    return [arguments.model, *arguments.ensemble]
