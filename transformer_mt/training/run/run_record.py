"""Records each start of a run in run.json, and checks that a run resumes with the data that it was trained on."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from transformer_mt.base.errors import CheckpointError, UserError
from transformer_mt.kernels.device import Device
from transformer_mt.storage.checksums import COPIED_FROM_DATA, write_sums
from transformer_mt.storage.files import read_json, write_json
from transformer_mt.storage.records import processor, versions
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.training_lines import TrainingLines
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.progress import Progress

_NAMES = {"train": "training data", "valid": "validation data"}


def check_same_data(progress: Progress, data: Mapping[str, str], data_dir: str, advice: str) -> None:
    """Raises CheckpointError, with this advice, if a run had other data. `data` are digests of data_dir."""
    if changed := [_NAMES[name] for name, digest in data.items() if progress.data.get(name, digest) != digest]:
        raise CheckpointError(
            f"until update {progress.step}, this run had other {' and '.join(changed)} than {data_dir} holds now: the "
            f"text was changed, or prepared in another way. Restore the earlier data, {advice}"
        )


def copy_from_data(data_dir: Path, tokenizer: Tokenizer, run_dir: Path) -> None:
    """Copy into the run the files that `average` puts into a model besides its weights."""
    tokenizer.save(run_dir)
    TrainingLines.load(data_dir).save(run_dir)
    write_sums(run_dir, [name for name in COPIED_FROM_DATA if (run_dir / name).exists()])


PACKAGES = ("torch", "numpy", "sentencepiece", "sacrebleu", "safetensors", "pydantic")
PACKAGE = Path(__file__).parents[2]


def record_start(run_dir: Path, progress: Progress, seed: int, device: Device, ranks: Ranks) -> None:
    """Append to run.json that training begins, or resumes from this progress, with its command, data and versions.

    Only the first rank does so. If the file cannot be read or written, a warning says so, and training continues.
    """
    if not ranks.is_first:
        return
    path = run_dir / "run.json"
    try:
        starts = read_json(path) if path.exists() else []
        if not isinstance(starts, list):
            raise ValueError("it is not a list")
        starts.append(_start(progress, seed, device, ranks))
        write_json(path, starts)
    except (OSError, ValueError) as error:
        reason = str(error) if isinstance(error, UserError) else f"{path}: cannot be read ({error})"
        tqdm.write(f"warning: {reason}. It will not record this start; training continues", file=sys.stderr)


def _start(progress: Progress, seed: int, device: Device, ranks: Ranks) -> dict[str, Any]:
    on_gpu = device.torch_device.type == "cuda"
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.orig_argv),
        "from_update": progress.step,
        "data": dict(progress.data),
        "seed": seed,
        "precision": {torch.float32: "fp32", torch.bfloat16: "bf16"}[device.dtype],
        "num_ranks": ranks.size,
        "num_threads": torch.get_num_threads(),
        "processor": processor(),
        "num_cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name(device.torch_device) if on_gpu else None,
        "num_gpus": ranks.size if on_gpu else 0,
        "versions": versions(PACKAGES) | ({"cuda": torch.version.cuda} if torch.version.cuda else {}),
        "git": _git(PACKAGE.parent),
    }


def _git(checkout: Path) -> dict[str, Any] | None:
    """The commit of the package's checkout, and whether its files were changed since; None if git has none."""
    if not (checkout / ".git").exists():
        return None
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}  # of another checkout
    command = ["git", "--no-optional-locks", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(
            [*command, "--exclude=*"], env=environment, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    commit = done.stdout.strip()
    return {"commit": commit.removesuffix("-dirty"), "changed": commit.endswith("-dirty")}
