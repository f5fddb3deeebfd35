"""What scores.json says about the models, the engine and the machine."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_mt.decoding.loading import EngineOptions
from transformer_mt.machine import processor, versions
from transformer_mt.storage.run_directory import weights_sha256
from transformer_mt.terminal import cli


def what_ran(model: Path, others: Sequence[Path], options: EngineOptions) -> dict[str, Any]:
    """Return the fields about a model, the other models of its ensemble, and the engine."""
    made_of = None
    if options.engine == "torch":  # exports do not have it
        from transformer_mt.storage.weights import read_metadata  # here, because it imports PyTorch

        made_of = read_metadata(model / "model.safetensors").get("made_of")
    return {
        "model": cli.shown(model),
        "model_sha256": weights_sha256(model),
        "made_of": made_of,
        "ensemble": [cli.shown(other) for other in others],
        "ensemble_sha256": [weights_sha256(other) for other in others],
        "engine": options.engine,
        "dtype": options.dtype,
        "quantize": options.quantize,
        "plain": options.plain,
    }


def machine(hardware: str, engine: str) -> dict[str, Any]:
    """Return the fields about the machine and the software; `hardware` is that of the engine."""
    gpu = None if hardware == "CPU" else hardware
    return {
        "hardware": {"processor": processor(), "num_cores": os.cpu_count(), "gpu": gpu},
        "versions": versions([engine, "sentencepiece", "sacrebleu"]),
    }
