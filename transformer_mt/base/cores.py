"""The processor's cores: how many this process may use, whether others use them, and how its threads wait."""

import ctypes
import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

GROUPS, OWN_GROUPS, PROCESSES = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc")
LEAST_SECONDS = 0.2  # the system counts in steps of 0.01 seconds

WATCHED_EVERY = 0.5  # seconds
MOST_TAKEN = 0.3  # of a core that our threads need: others may take so much without making them sleep
MOST_SPARE = 16  # cores that our threads do not need; with more, others rarely take ours
QUIET = 6  # times in a row without others until threads spin again


def text(path: Path) -> str:
    """Return the content of a file of the system, or '' if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")  # Linux cuts the names of programs to 15 bytes
    except OSError:
        return ""


def own_cores() -> set[int]:
    """Return the numbers of the cores on which the system may run this process."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def num_cores() -> int:
    """Return how many cores this process may keep busy: the least of its affinity, its quota and OMP_NUM_THREADS."""
    numbers = [len(own_cores()), math.ceil(_quota())]
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if wanted.isdecimal() and os.environ.get("LOCAL_WORLD_SIZE", "1") == "1":  # torchrun sets it to 1 by itself
        numbers.append(int(wanted))
    return min(number for number in numbers if number > 0)


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

    Linux has two versions: version 1 has a tree of groups for each controller (memory), or for several (cpu,cpuacct);
    version 2 has one tree for all.
    """
    for line in text(OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            for root in {GROUPS / controllers, GROUPS / controller} if controllers else {GROUPS}:
                group = root / path.strip("/")  # may not exist inside a container: then root is the group
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
        return min(max(0.0, taken / seconds), len(own_cores()))

    def _counted(self) -> tuple[float, float]:
        """The time, and the seconds in which others have used our cores; 0 if the system does not say it."""
        now, busy, ours = time.monotonic(), 0, {f"cpu{number}" for number in own_cores()}
        for name, *columns in (line.split() for line in text(PROCESSES / "stat").splitlines()):
            if name in ours:
                user, nice, system, _, _, *interrupts = map(int, columns[:8])  # and time stolen by other guests
                busy += user + nice + system + sum(interrupts)
        if not busy or not hasattr(os, "sysconf"):
            return now, 0.0
        return now, (busy - _ticks_of(os.getpid())) / os.sysconf("SC_CLK_TCK")


def _ticks_of(pid: int) -> int:
    """Return the processor time of a process and of the processes that it has started, in ticks of the system."""
    directory = PROCESSES / str(pid)
    columns = text(directory / "stat").rpartition(")")[2].split()  # the name before may have blanks
    try:
        threads = os.listdir(directory / "task")
    except OSError:  # the process has ended meanwhile
        threads = []
    children = " ".join(text(directory / "task" / thread / "children") for thread in threads).split()
    return sum(map(int, columns[11:15])) + sum(_ticks_of(int(child)) for child in children)


def sleep_beside_others(num_threads: int) -> None:
    """From now on, let the threads of this process sleep while they wait, as long as other programs take cores.

    PyTorch's threads share each small step and wait for each other after it. GNU's OpenMP lets a waiting thread spin
    for milliseconds, because waking a thread takes as long as many of these steps. But a thread that spins for another
    one, from which a program has taken the core, takes time from both: then training may need 40 times as long.
    Does nothing on other systems, and if the user has chosen how OpenMP's threads wait.
    """
    chosen = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    is_watched = any(thread.name == _watch.__name__ for thread in threading.enumerate())
    spare = max(0, len(own_cores()) - num_threads)
    if num_threads > 1 and spare <= MOST_SPARE and not chosen and not is_watched and _gnu_openmp():
        threading.Thread(target=_watch, args=(spare,), name=_watch.__name__, daemon=True).start()


def _gnu_openmp() -> "ctypes.CDLL | None":
    """Return the libraries that PyTorch has loaded, if GNU's OpenMP is among them."""
    loaded = ctypes.CDLL(None)
    return loaded if hasattr(loaded, "GOMP_parallel") else None


def _watch(spare: int) -> None:
    """Look twice a second whether other programs take more cores than those that our threads do not need."""
    others, num_quiet = OtherPrograms(), 0
    is_over: threading.Event | None = None
    while True:
        time.sleep(WATCHED_EVERY)
        num_quiet = 0 if (others.cores() or 0.0) > spare + MOST_TAKEN else num_quiet + 1
        if num_quiet == 0 and is_over is None:
            is_over = threading.Event()
            threading.Thread(target=crowd, args=(is_over,), daemon=True).start()
        elif num_quiet >= QUIET and is_over is not None:
            is_over.set()
            is_over = None


def crowd(is_over: threading.Event) -> None:
    """Until the event, keep threads that do nothing, more than cores, so that all threads of this process wait asleep.

    Then GNU's OpenMP lets a waiting thread spin 100 rounds instead of 300,000 (GOMP_SPINCOUNT in its manual). The
    threads exist as long as the thread that has started them, which is the one that calls this.
    """
    if openmp := _gnu_openmp():
        does_nothing = ctypes.cast(openmp.labs, ctypes.c_void_p)
        openmp.GOMP_parallel(does_nothing, None, len(own_cores()) + 1, 0)
    is_over.wait()
