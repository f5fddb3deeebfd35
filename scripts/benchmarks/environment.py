"""The conditions under which the process of every contender runs, in training and in decoding."""

import os
import sys
from pathlib import Path

from transformer_mt.errors import UserError

SCRIPTS = str(Path(__file__).resolve().parent.parent)
# Without these, glibc maps, zeroes and unmaps each large tensor page by page; `choose_device` sets the same for ours.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**34)}
TAIL = 25  # lines of a contender's output that are shown when it fails


class PeerError(UserError):
    """A contender cannot be run, or computes something else than ours."""


def own_path() -> str:
    """Where this process finds its modules, as a value of PYTHONPATH."""
    return os.pathsep.join(path for path in sys.path if path)


def environment_of(pythonpath: str, threads: int) -> dict[str, str]:
    """Environment variables of a contender; only `pythonpath`, where it finds its modules, differs between them."""
    numbers = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return os.environ | MALLOC | numbers | {"PYTHONPATH": pythonpath, "PYTHONUNBUFFERED": "1"}
