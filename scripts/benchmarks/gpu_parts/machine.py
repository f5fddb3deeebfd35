"""On what was measured: the GPU, its driver, the versions of what computes, the commit of the checkout."""

import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.environment import SCRIPTS, processor_and_load
from benchmarks.gpu_parts.settings import Figures, Settings

PACKAGES = ("numpy", "triton", "transformers", "ctranslate2", "sentencepiece")
DRIVER = Path("/proc/driver/nvidia/version")


def describe(settings: Settings) -> Figures:
    """The facts that stand at the head of every report."""
    return {
        "device": torch.cuda.get_device_name() if settings.on_gpu else processor_and_load(),
        "memory_gib": _gpu_memory() if settings.on_gpu else None,
        "driver": _driver() if settings.on_gpu else None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _printed(["git", "-C", SCRIPTS, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]),
    }


def _gpu_memory() -> float:
    return round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1)


def _driver() -> str | None:
    """The version of the GPU's driver, if the machine tells it."""
    if found := _printed(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]):
        return found.splitlines()[0]
    text = DRIVER.read_text(encoding="utf-8") if DRIVER.is_file() else ""
    numbers = re.search(r"\d+\.\d+(\.\d+)?", text)
    return numbers[0] if numbers else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _printed(command: Sequence[str]) -> str | None:
    """What a command prints; None if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
