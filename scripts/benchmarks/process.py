"""What every contender of the training benchmark is given, and how one is run: as a process, by what it prints."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from transformer_mt.errors import UserError
from transformer_mt.settings.experiment import TrainingConfig
from transformer_mt.settings.model import TransformerConfig

SCRIPTS = str(Path(__file__).resolve().parent.parent)
# Else glibc maps, zeroes and unmaps each large tensor page by page; `choose_device` sets the same for ours.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**34)}
FACT = re.compile(r"^(first loss|GPU megabytes): ([\d.]+)$")
TAIL = 25  # lines of a contender's output that are shown when it fails


class PeerError(UserError):
    """A contender cannot be run, or is not what it should be."""


@dataclass(frozen=True)
class Race:
    """The same for all contenders."""

    directory: Path
    """train.source, train.target, valid.source, valid.target: pieces separated by spaces; pieces.txt: one a line."""
    model: TransformerConfig
    training: TrainingConfig
    vocab_size: int
    """The four special pieces included, which pieces.txt lacks."""
    warm_up: int
    """Updates before the timed ones, at least one."""
    updates: int
    """Timed ones."""
    threads: int
    device: str
    """cpu or cuda."""

    @property
    def last_update(self) -> int:
        return self.warm_up + self.updates


@dataclass(frozen=True)
class Contender:
    """A command that trains, and how to read what it prints."""

    name: str
    precision: str
    command: tuple[str, ...]
    started: re.Pattern[str]
    """A line that is printed when its imports are done."""
    progress: re.Pattern[str]
    """A line whose groups are `update` and `speed`: real target tokens a second since the line before."""
    pythonpath: str = SCRIPTS
    """A Python of its own is to find nothing else of ours."""

    @property
    def title(self) -> str:
        return f"{self.name}, {self.precision}"


@dataclass(frozen=True)
class Result:
    """Of one run."""

    tokens_per_second: float
    """Real target tokens."""
    megabytes: float
    """The most that the process held in main memory."""
    gpu_megabytes: float | None
    """The most that its tensors held there, if it says so."""
    seconds_to_first_update: float
    """From the start of the process."""
    seconds_after_imports: float
    first_loss: float | None
    """Of the first batch without dropout, in nats a target token, if it says so."""


def own_path() -> str:
    """Where this process finds its modules, as PYTHONPATH."""
    return os.pathsep.join(path for path in sys.path if path)


def environment_of(pythonpath: str, threads: int) -> dict[str, str]:
    """The same for all, but for where they find their modules."""
    numbers = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return os.environ | MALLOC | numbers | {"PYTHONPATH": pythonpath, "PYTHONUNBUFFERED": "1"}


def run(contender: Contender, race: Race) -> Result:
    """Train until the last update. Raises PeerError if that fails."""
    began, lines, kibibytes = time.perf_counter(), [], 0
    with subprocess.Popen(
        contender.command,
        cwd=race.directory,
        env=environment_of(contender.pythonpath, race.threads),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            lines.append((time.perf_counter() - began, line.rstrip()))
            kibibytes = max(kibibytes, _peak_kibibytes(process.pid))
    try:
        if process.returncode:
            raise ValueError(f"it ended with status {process.returncode}")
        return read_log(contender, lines, race, kibibytes)
    except ValueError as error:
        tail = "\n  ".join(line for _, line in lines[-TAIL:])
        raise PeerError(f"{contender.title}: {error}. What it printed last:\n  {tail}") from None


def read_log(contender: Contender, lines: Sequence[tuple[float, str]], race: Race, kibibytes: int) -> Result:
    """What the lines of a run say, each after the seconds at which it came. Raises ValueError if they lack updates."""
    imported = next((at for at, line in lines if contender.started.search(line)), None)
    found = [(at, contender.progress.search(line)) for at, line in lines]
    reports = [(at, int(match["update"]), float(match["speed"])) for at, match in found if match]
    # What a speed is of: the seconds since the line before.
    timed = [(now[0] - before[0], now[2]) for before, now in pairwise(reports) if now[1] > race.warm_up]
    if imported is None or not timed or reports[-1][1] < race.last_update:
        raise ValueError(f"its log does not tell of its imports and of {race.last_update} updates")
    facts = dict(match.groups() for _, line in lines if (match := FACT.match(line)))
    return Result(
        tokens_per_second=sum(seconds * speed for seconds, speed in timed) / sum(seconds for seconds, _ in timed),
        megabytes=kibibytes * 1.024e-3,
        gpu_megabytes=float(facts["GPU megabytes"]) if "GPU megabytes" in facts else None,
        seconds_to_first_update=reports[0][0],
        seconds_after_imports=reports[0][0] - imported,
        first_loss=float(facts["first loss"]) if "first loss" in facts else None,
    )


def _peak_kibibytes(pid: int) -> int:
    """The most that the process has held so far; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) if "VmHWM:" in status else 0
