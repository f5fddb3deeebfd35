"""Measures how fast `prepare` is, beside sentencepiece on the same text in the same round.

Ours is the whole command with a tokenizer that is there already: start of Python, digest, reading, filters, both sides
encoded, written. sentencepiece takes part twice: its program `spm_encode`, if that is installed, reads text and writes
numbers; and encoding alone is timed in the memory of one process, by one thread. Speeds are per core: ours with N
worker processes is divided by N. They are compared with `spm_encode`, or with sentencepiece alone where that program is
missing. The times of the processor are there, too, because other programs may run.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from benchmarks.environment import SCRIPTS, PeerError, environment_of, own_path
from transformer_mt.base.cores import num_cores

_TOKENIZER_LINES = 100_000
_SAMPLED_EVERY = 0.05  # seconds
IN_MEMORY = "sentencepiece alone"
PROGRAM = "spm_encode"


@dataclass(frozen=True)
class Timed:
    """What one run of a contender took."""

    seconds: float
    cpu_seconds: float
    """Of the process and its children."""
    megabytes: float | None = None
    """The sum of the most that each of its processes held in memory (VmHWM), if that was looked at."""


def measure_prepare(text: tuple[Path, Path], directory: Path, rounds: int, vocab_size: int = 6000) -> dict[str, Any]:
    """Print and return the speeds. Raises PeerError if a contender fails."""
    config = _write_experiment(text, directory, vocab_size)
    with text[0].open("rb") as file:
        num_pairs = sum(1 for _ in file)
    print(f"{num_pairs:,} pairs, {sum(path.stat().st_size for path in text) / 1e6:,.0f} MB, vocabulary {vocab_size:,}")
    runs = _contenders(text, directory, config)
    found: dict[str, list[Timed]] = {}
    for number in range(rounds):
        for name in runs if number % 2 == 0 else reversed(runs):
            found.setdefault(name, []).append(runs[name]())
    if PROGRAM not in found:
        print(f"  {PROGRAM}: left out, the program is not installed")
    against = PROGRAM if PROGRAM in found else IN_MEMORY
    return {name: _result(name, timed, against, found[against], num_pairs) for name, timed in found.items()}


def _contenders(text: tuple[Path, Path], directory: Path, config: Path) -> dict[str, Callable[[], Timed]]:
    """What each contender does in a round."""
    model = directory / "tokenizer" / "tokenizer.model"
    runs: dict[str, Callable[[], Timed]] = {IN_MEMORY: partial(_sentencepiece, model, text)}
    if program := shutil.which(PROGRAM):
        runs[PROGRAM] = partial(_spm_encode, program, model, text, directory)
    for workers in sorted({1, num_cores()}):
        runs[f"prepare --workers {workers}"] = partial(_prepare, config, directory, workers)
    return runs


def _result(name: str, timed: list[Timed], against: str, others: list[Timed], num_pairs: int) -> dict[str, Any]:
    """Print a line about a contender, and return its numbers."""
    cores = int(name.rsplit(" ", 1)[1]) if name.startswith("prepare") else 1
    ratios = [theirs.seconds / (one.seconds * cores) for one, theirs in zip(timed, others, strict=True)]
    of_cpu = [theirs.cpu_seconds / one.cpu_seconds for one, theirs in zip(timed, others, strict=True)]
    speed = median(num_pairs / one.seconds for one in timed)
    memory = max((one.megabytes for one in timed if one.megabytes is not None), default=None)
    print(
        f"  {name:22} {speed:9,.0f} pairs/s; per core {median(ratios):.2f} times {against} "
        f"({min(ratios):.2f}–{max(ratios):.2f}), by processor time {median(of_cpu):.2f} "
        f"({min(of_cpu):.2f}–{max(of_cpu):.2f})" + (f"; {memory:,.0f} MB" if memory else "")
    )
    return {
        "pairs_per_second": speed,
        "cores": cores,
        "compared_with": against,
        "ratios_per_core": ratios,
        "ratios_of_processor_time": of_cpu,
        "megabytes": memory,
        "rounds": [vars(one) for one in timed],
    }


def _write_experiment(text: tuple[Path, Path], directory: Path, vocab_size: int) -> Path:
    """Train a tokenizer on the beginning of the text; a configuration that takes it."""
    directory.mkdir(parents=True)
    for path, language in zip(text, ("source", "target"), strict=True):
        for name, most in (("few", _TOKENIZER_LINES), ("valid", 100)):
            with path.open("rb") as file, (directory / f"{name}.{language}").open("wb") as beginning:
                beginning.writelines(line for _, line in zip(range(most), file, strict=False))
    content = {
        "data_dir": str(directory / "tokenizer"),
        "run_dir": str(directory / "run"),
        "corpus": {
            "source_language": "source",
            "target_language": "target",
            "train": {"source": str(text[0].absolute()), "target": str(text[1].absolute())},
            "valid": str(directory / "valid"),
            "test": {},
        },
        "tokenizer": {"vocab_size": vocab_size},
        "filters": {"held_out": False},
    }
    config = directory / "prepare.yaml"
    config.write_text(yaml.safe_dump(content), encoding="utf-8")
    _timed([*_OURS, str(config), f"corpus.train={directory / 'few'}"])
    return config


_OURS = [sys.executable, "-m", "transformer_mt.prepare"]


def _prepare(config: Path, directory: Path, workers: int) -> Timed:
    data = directory / "data"
    shutil.rmtree(data, ignore_errors=True)
    existing = f"tokenizer.from={directory / 'tokenizer'}"
    return _timed([*_OURS, str(config), f"data_dir={data}", existing, "--workers", str(workers)])


def _sentencepiece(model: Path, text: tuple[Path, Path]) -> Timed:
    module = "benchmarks.contenders.encode_sentencepiece"
    command = [sys.executable, "-m", module, str(model), *map(str, text)]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)
    if done.returncode:
        raise PeerError(f"sentencepiece has failed: {done.stderr[-2000:]}")
    seconds, cpu = map(float, done.stdout.split())
    return Timed(seconds, cpu)


def _spm_encode(program: str, model: Path, text: tuple[Path, Path], directory: Path) -> Timed:
    flags = [program, f"--model={model}", "--output_format=id"]
    sides = zip(("source", "target"), text, strict=True)
    return _sum(_timed([*flags, f"--output={directory}/id.{side}", f"--input={path}"]) for side, path in sides)


def _sum(parts: Iterable[Timed]) -> Timed:
    listed = list(parts)
    return Timed(sum(part.seconds for part in listed), sum(part.cpu_seconds for part in listed))


def _timed(command: list[str]) -> Timed:
    """Run a command. Raises PeerError if it fails."""
    began, env = time.perf_counter(), _environment()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env) as process:
        most: dict[int, int] = {}
        while True:
            _look_at_memory(process.pid, most)
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(_SAMPLED_EVERY)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output = process.stdout.read().decode(errors="replace") if process.stdout else ""
    if process.returncode:
        raise PeerError(f"{' '.join(command)} has failed: {output[-2000:]}")
    return Timed(seconds, usage.ru_utime + usage.ru_stime, sum(most.values()) / 1024 if most else None)


def _look_at_memory(pid: int, most: dict[int, int]) -> None:
    """Note the most kilobytes that a process and its children have held so far, where the system tells it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in [pid, *map(int, children)]:
            for line in Path(f"/proc/{each}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    most[each] = int(line.split()[1])
    except OSError:  # it has just ended, or the system has no such files
        return


def _environment() -> dict[str, str]:
    return environment_of(os.pathsep.join([SCRIPTS, own_path()]), 1)
