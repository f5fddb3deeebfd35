"""Measures how much memory this process has used, and how much memory the machine has."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path


def machine_memory() -> int:
    """Return the machine's memory in bytes, or the limit of the container in which this process runs."""
    return min(_installed(), _container_limit())


def _container_limit() -> int:
    """Return the limit of this process's control group; if there is none, a number that is larger than any memory."""
    limit = _text("/sys/fs/cgroup/memory.max").strip()
    return int(limit) if limit.isdecimal() else sys.maxsize


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if Path(path).is_file() else ""


if sys.platform != "win32":
    import resource

    def peak_memory() -> int:
        """Return the peak of this process's memory so far, in bytes, without worker processes and GPU memory."""
        # On Linux, ru_maxrss includes memory of the process that started this one; VmHWM counts only this program.
        if found := re.search(r"^VmHWM:\s*(\d+) kB", _text("/proc/self/status"), re.MULTILINE):
            return int(found[1]) * 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # in bytes on macOS, in KiB elsewhere

    def free_memory() -> int:
        """Return how many bytes of the machine's memory are free for programs, but at most the container's limit."""
        found = re.search(r"MemAvailable: *(\d+) kB", _text("/proc/meminfo"))
        return min(int(found[1]) * 1024 if found else _installed(), _container_limit())

    def _installed() -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

else:
    import ctypes

    def peak_memory() -> int:
        numbers = (ctypes.c_uint64 * 9)(72)  # PROCESS_MEMORY_COUNTERS: its size, the peak, and others
        ctypes.windll.kernel32.K32GetProcessMemoryInfo(ctypes.c_void_p(-1), numbers, 72)  # -1: this process
        return numbers[1]

    def free_memory() -> int:
        return _memory()[2]

    def _installed() -> int:
        return _memory()[1]

    def _memory() -> Sequence[int]:
        numbers = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX: its size, all memory, free memory, and others
        ctypes.windll.kernel32.GlobalMemoryStatusEx(numbers)
        return list(numbers)
