"""Gives a measurement a process of its own: its compilation, its memory and its failures are then its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from benchmarks.environment import TAIL, PeerError, environment_of, own_path
from benchmarks.gpu_parts.settings import Figures, Settings

Measure = Callable[[str, Settings], Figures]
"""Makes the measurement of that name."""
LOG = "log.txt"


def in_own_process(module: str, name: str, settings: Settings, seconds: float) -> Figures:
    """What `answer` of that module of gpu_parts says of a measurement. Raises PeerError if it fails or takes longer.

    What the process prints is added to the log beside the reports.
    """
    for directory in (settings.work, settings.out):
        directory.mkdir(parents=True, exist_ok=True)
    job, result = settings.work / "job.json", settings.work / "result.json"
    job.write_text(settings.model_dump_json(), encoding="utf-8")
    result.unlink(missing_ok=True)
    words = f"benchmarks.gpu_parts.{module}", name, str(job), str(result)
    with (settings.out / LOG).open("a+", encoding="utf-8", errors="replace") as log:
        print(f"--- {module}: {name}", file=log, flush=True)
        begins_at = log.tell()
        with subprocess.Popen(
            (sys.executable, "-m", *words),
            env=environment_of(own_path(), settings.threads),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            fault = _wait(process, seconds)
        if fault:
            raise PeerError(f"{module}, {name}: {fault}. What it printed last:\n  {_tail(log, begins_at)}")
    figures: Figures = json.loads(result.read_text(encoding="utf-8"))
    return figures


def answer(measure: Measure) -> None:
    """Make the measurement that the arguments of this process name, and write what it found."""
    name, job, result = sys.argv[1:]
    figures = measure(name, Settings.model_validate_json(Path(job).read_text(encoding="utf-8")))
    Path(result).write_text(json.dumps(figures), encoding="utf-8")


def _wait(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait until it ends; after `seconds`, kill it and its children. The fault; empty if there is none."""
    try:
        status = process.wait(timeout=seconds)
        return f"it ended with status {status}" if status else ""
    except subprocess.TimeoutExpired:
        return f"it was stopped after {seconds:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _tail(log: TextIO, begins_at: int) -> str:
    log.seek(begins_at)
    return "\n  ".join(log.read().splitlines()[-TAIL:])
