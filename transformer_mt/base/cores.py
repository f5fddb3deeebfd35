"""The processor's cores: how many this process may use, whether others use them, and how its threads wait."""

import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

GROUPS, OWN_GROUPS, PROCESSES = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc")
LEAST_SECONDS = 0.2  # the system counts in steps of 0.01 seconds

WATCHED_EVERY = 0.5  # seconds
MOST_TAKEN = 0.3  # cores that others take without making our threads sleep
QUIET = 6  # times in a row without others until threads spin again


def text(path: Path) -> str:
    """Return the content of a file of the system, or '' if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def num_cores() -> int:
    """Return how many cores this process may keep busy: the least of its affinity, its quota and OMP_NUM_THREADS."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if not wanted.isdecimal() or os.environ.get("LOCAL_WORLD_SIZE", "1") != "1":  # torchrun sets it to 1 by itself
        wanted = ""
    return max(1, min(affinity, math.ceil(_quota()), int(wanted or affinity) or affinity))


def _quota() -> float:
    """Return the processor time for each second that a container or a job has; if there is no limit, a large number."""
    quotas = [float(sys.maxsize)]
    for group in control_groups("cpu"):
        of_v1 = f"{text(group / 'cpu.cfs_quota_us')} {text(group / 'cpu.cfs_period_us')}"
        quota, period, *_ = [*(text(group / "cpu.max") or of_v1).split(), "", ""]
        if quota.isdecimal() and period.isdecimal():  # without a limit, it is "max" or -1
            quotas.append(int(quota) / int(period))
    return min(quotas)


def container_memory() -> int:
    """Return the memory limit of a container or a job in bytes; if there is none, a number larger than any memory."""
    limits = [sys.maxsize]
    for group in control_groups("memory"):
        limit = (text(group / "memory.max") or text(group / "memory.limit_in_bytes")).strip()
        limits += [int(limit)] if limit.isdecimal() else []
    return min(limits)


def control_groups(controller: str) -> Iterator[Path]:
    """Yield the directories of this process's control groups, from its own up, as far as they can be seen from here.

    Linux has two versions: version 1 has a tree of groups for each controller (cpu, memory), version 2 one for all.
    """
    for line in text(OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            root = GROUPS / controller if controllers else GROUPS
            group = root / path.strip("/")  # seen from inside a container, a path may not exist: then root is the group
            yield from (each for each in (group, *group.parents) if each.is_relative_to(root))


class OtherPrograms:
    """How many of the cores that this process may use are taken by other programs, or by other guests of the host."""

    def __init__(self) -> None:
        self._before = self._counted()

    def cores(self) -> float | None:
        """Return the mean number of cores since the last call, or since this object was made.

        None if less than 0.2 seconds have passed, or if the system does not say it, as on Windows and macOS.
        """
        now = self._counted()
        seconds, taken = (now[index] - self._before[index] for index in (0, 1))
        if seconds < LEAST_SECONDS or not now[1]:
            return None
        self._before = now
        return max(0.0, taken / seconds)

    def _counted(self) -> tuple[float, float]:
        """The time, and the seconds in which others have used our cores; 0 if the system does not say it."""
        now, busy = time.monotonic(), 0
        if not hasattr(os, "sched_getaffinity") or not (counters := text(PROCESSES / "stat")):
            return now, 0.0
        ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        for name, *columns in (line.split() for line in counters.splitlines()):
            if name in ours:
                user, nice, system, _, _, *interrupts = map(int, columns[:8])
                busy += user + nice + system + sum(interrupts)
        return now, (busy - _ticks_of(os.getpid())) / os.sysconf("SC_CLK_TCK")


def _ticks_of(pid: int) -> int:
    """Return the processor time of a process and of the processes that it has started, in ticks of the system."""
    directory = PROCESSES / str(pid)
    columns = text(directory / "stat").rpartition(")")[2].split()  # the name before may have blanks
    children = " ".join(text(task / "children") for task in directory.glob("task/*")).split()
    return sum(map(int, columns[11:15])) + sum(_ticks_of(int(child)) for child in children)
