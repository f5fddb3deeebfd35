"""The conditions under which the process of every contender runs, in training and in decoding, and the processor."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from transformer_mt import COMPILED_PRODUCTS
from transformer_mt.base.cores import num_cores
from transformer_mt.base.errors import UserError
from transformer_mt.storage.records import processor

SCRIPTS = str(Path(__file__).resolve().parent.parent)
# Without these, glibc maps, zeroes and unmaps each large tensor page by page; `choose_device` sets the same for ours.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**34)}
TAIL = 25  # lines of a contender's output that are shown when it fails


class PeerError(UserError):
    """A contender cannot be run, or computes something else than ours."""


@contextmanager
def killed_after(process: "subprocess.Popen[Any]", seconds: float | None) -> Iterator[None]:
    """Kill a process that leads a session of its own, and its children, if it still runs after these seconds."""

    def kill() -> None:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds or 0.0, kill)
    if seconds is not None:
        timer.start()
    try:
        yield
    except BaseException:  # Ctrl-C reaches only our own session
        kill()
        raise
    finally:
        timer.cancel()


def own_path() -> str:
    """Where this process finds its modules, as a value of PYTHONPATH."""
    return os.pathsep.join(path for path in sys.path if path)


def environment_of(pythonpath: str, threads: int, libraries: str = "") -> dict[str, str]:
    """Environment variables of a contender; only where it finds its modules, and libraries, differs between them.

    The numbers of compiled products, which this package sets when it is imported, are left out.
    """
    numbers = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    own = {"PYTHONPATH": pythonpath, "PYTHONUNBUFFERED": "1"}
    if libraries:
        own["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [libraries, os.environ.get("LD_LIBRARY_PATH")]))
    others = {name: value for name, value in os.environ.items() if name not in COMPILED_PRODUCTS}
    return others | MALLOC | numbers | own


def processor_and_load() -> str:
    """The processor and its instructions, and how busy it is, in words."""
    instructions = torch.backends.cpu.get_cpu_capability()
    if torch.cpu.get_capabilities().get("avx512_vnni"):  # without, int8 is slower by far
        instructions += " with VNNI"
    return f"{processor()}, {instructions}, {num_cores()} cores, load {os.getloadavg()[0]:.1f} before"
