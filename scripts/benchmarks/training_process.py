"""Runs a contender of the training benchmark as a process of its own, and reads its speed from what it prints."""

import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.environment import SCRIPTS, TAIL, PeerError, environment_of, killed_after
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.training_settings import TrainingConfig

FACT = re.compile(r"^(first loss|GPU megabytes): ([\d.]+)$")


@dataclass(frozen=True)
class Race:
    """The conditions of a training race, the same for all contenders."""

    directory: Path
    """train.source, train.target: pieces separated by spaces; pieces.txt: one a line."""
    model: TransformerConfig
    training: TrainingConfig
    vocab_size: int
    """Counts the four special pieces, which are not in pieces.txt."""
    warm_up: int
    """Updates before the timed ones, at least one."""
    updates: int
    """Timed updates."""
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
    """Matches a line that is printed when its imports are done."""
    progress: re.Pattern[str]
    """Matches a line that tells the speed: `update` is its number, `speed` real target tokens a second since the last
    such line."""
    pythonpath: str = SCRIPTS
    """Where it finds modules; a peer with a Python of its own finds only our scripts."""

    @property
    def title(self) -> str:
        return f"{self.name}, {self.precision}"


@dataclass(frozen=True)
class Result:
    """What one run of a contender showed."""

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


def run(contender: Contender, race: Race, seconds: float | None = None) -> Result:
    """Train until the last update. Raises PeerError if that fails, or has not ended after these seconds."""
    began, lines, kibibytes = time.perf_counter(), [], 0
    with (
        subprocess.Popen(
            contender.command,
            cwd=race.directory,
            env=environment_of(contender.pythonpath, race.threads),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        ) as process,
        killed_after(process, seconds),
    ):
        for line in process.stdout or ():
            lines.append((time.perf_counter() - began, line.rstrip()))
            kibibytes = max(kibibytes, _peak_kibibytes(process.pid))
    try:
        if process.returncode:
            too_long = seconds is not None and time.perf_counter() - began >= seconds
            late = f", as it had not ended after {seconds:.0f} s" if too_long else ""
            raise ValueError(f"it ended with status {process.returncode}{late}")
        return read_log(contender, lines, race, kibibytes)
    except ValueError as error:
        tail = "\n  ".join(line for _, line in lines[-TAIL:])
        raise PeerError(f"{contender.title}: {error}. What it printed last:\n  {tail}") from None


def read_log(contender: Contender, lines: Sequence[tuple[float, str]], race: Race, kibibytes: int) -> Result:
    """The result of a run by its lines, each a pair of the second at which it came and its text.

    Raises ValueError if the lines do not tell of all updates.
    """
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
    """The most memory that the process has held so far, in KiB; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) if "VmHWM:" in status else 0
