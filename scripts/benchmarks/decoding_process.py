"""Runs a contender of the decoding benchmark as a process of its own, and reads what it prints and writes."""

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contenders.decoding import Decoder
from benchmarks.environment import TAIL, PeerError, environment_of, killed_after

FACT = re.compile(r"^(pass|alone) (\d+): ([\d.]+)$", re.MULTILINE)
WATCHED_EVERY = 0.05  # seconds


@dataclass(frozen=True)
class Pass:
    """One translation of the whole text."""

    beam: int
    """The beam size; 1 is greedy."""
    size: int
    """The batch size, in the contender's own unit."""


@dataclass(frozen=True)
class Outcome:
    """The translations of a pass, and how long they took."""

    lines: list[str]
    seconds: float
    seconds_alone: float | None
    """The mean time of a sentence translated by itself; None if that was not asked for."""


@dataclass(frozen=True)
class Conditions:
    """The conditions of a decoding race, the same for all contenders."""

    directory: Path
    """Where jobs, logs and outputs are written."""
    threads: int
    text: Path
    """The source, a sentence a line."""
    job: Mapping[str, Any]
    """What else each contender is told."""


def run_passes(
    decoder: Decoder,
    conditions: Conditions,
    passes: Sequence[Pass],
    alone: int = 0,
    watch: bool = False,
    seconds: float | None = None,
) -> tuple[list[Outcome], float]:
    """Run all passes in one process; return their outcomes and, if `watch`, the most megabytes that it held.

    After each pass, the first `alone` sentences are translated one at a time. Raises PeerError, also if it has not
    ended after these seconds.
    """
    outputs = [conditions.directory / f"output.{number}" for number in range(len(passes))]
    job = _write_job(decoder, conditions, passes, outputs, alone)
    command = decoder.python, "-m", f"benchmarks.contenders.{decoder.module}", str(job)
    text, status, peak = _run(decoder, command, conditions, watch, seconds)
    times = {(kind, int(number)): float(value) for kind, number, value in FACT.findall(text)}
    if status or len([kind for kind, _ in times if kind == "pass"]) < len(passes):
        raise PeerError(f"{decoder.title}: it ended with status {status}. {_tail(text)}")
    outcomes = [
        Outcome(path.read_text(encoding="utf-8").split("\n")[:-1], times["pass", i], times.get(("alone", i)))
        for i, path in enumerate(outputs)
    ]
    return outcomes, peak


def _run(
    decoder: Decoder, command: Sequence[str], conditions: Conditions, watch: bool, seconds: float | None
) -> tuple[str, int, float]:
    """What the process prints, its status and, if `watch`, the most megabytes that it held."""
    peak = 0.0
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        with (
            subprocess.Popen(
                command,
                cwd=conditions.directory,
                env=environment_of(decoder.pythonpath, conditions.threads, decoder.libraries),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
            killed_after(process, seconds),
        ):
            while watch and process.poll() is None:
                peak = max(peak, megabytes_of_session(process.pid))
                time.sleep(WATCHED_EVERY)
            process.wait()
        log.seek(0)
        return log.read(), process.returncode, peak


def seconds_to_first_line(decoder: Decoder, conditions: Conditions, width: int, size: int) -> float:
    """Seconds from the start of a process that is given the first line to its translation. Raises PeerError."""
    if decoder.line_command:
        command: Sequence[str] = (*decoder.line_command, f"beam_size={width}")
    else:
        job = _write_job(decoder, conditions, [Pass(width, size)], [conditions.directory / "unused"], 0)
        command = decoder.python, "-m", f"benchmarks.contenders.{decoder.module}", str(job), "line"
    line = conditions.text.read_text(encoding="utf-8").partition("\n")[0]
    return _seconds(decoder.title, command, decoder.pythonpath, conditions, line)


def seconds_to_import_torch(decoder: Decoder, conditions: Conditions) -> float:
    """Seconds of a process that only imports PyTorch."""
    command = decoder.python, "-c", "import torch; print(torch.__version__)"
    return _seconds("import torch", command, decoder.pythonpath, conditions)


def megabytes_of_session(session: int) -> float:
    """Memory of a process and its children in megabytes; 0 where there is no /proc.

    Shared memory counts once: each process counts its proportional share (PSS) of anonymous and shared memory. Mapped
    files, such as libraries, count as in the process that maps most of them.
    """
    kibibytes, mapped = 0, 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int((process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[3]) != session:
                continue
            sizes = _sizes(process / "smaps_rollup") | _sizes(process / "status")
        except OSError:  # it has ended
            continue
        kibibytes += sizes.get("Pss_Anon", 0) + sizes.get("Pss_Shmem", 0)
        mapped = max(mapped, sizes.get("RssFile", 0))
    return (kibibytes + mapped) * 1.024e-3


def _sizes(path: Path) -> dict[str, int]:
    """The sizes in a file of /proc by their names, in KiB."""
    found = re.findall(r"^(\w+): +(\d+) kB$", path.read_text(encoding="utf-8").replace("\t", " "), re.MULTILINE)
    return {name: int(size) for name, size in found}


def _write_job(
    decoder: Decoder, conditions: Conditions, passes: Sequence[Pass], outputs: Sequence[Path], alone: int
) -> Path:
    job = {
        "model": str(decoder.model),
        "text": str(conditions.text),
        "threads": conditions.threads,
        "settings": decoder.settings,
        "passes": [
            {"beam": one.beam, "size": one.size, "output": str(path)} for one, path in zip(passes, outputs, strict=True)
        ],
        "alone": alone,
    }
    path = conditions.directory / "job.json"
    path.write_text(json.dumps(job | dict(conditions.job)), encoding="utf-8")
    return path


def _seconds(title: str, command: Sequence[str], pythonpath: str, conditions: Conditions, line: str = "") -> float:
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        began = time.perf_counter()
        with subprocess.Popen(
            command,
            cwd=conditions.directory,
            env=environment_of(pythonpath, conditions.threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            encoding="utf-8",
        ) as process:
            assert process.stdin is not None and process.stdout is not None, "they are pipes"
            process.stdin.write(f"{line}\n")
            process.stdin.close()
            first = process.stdout.readline()
            seconds = time.perf_counter() - began
            process.stdout.read()
        log.seek(0)
        if process.returncode or not first:
            raise PeerError(f"{title}: no line came, with status {process.returncode}. {_tail(log.read())}")
    return seconds


def _tail(text: str) -> str:
    return "What it printed last:\n  " + "\n  ".join(text.splitlines()[-TAIL:])
