"""Measures how much memory this process has used, and how much the machine has."""

import os
import re
import resource
import sys
from pathlib import Path


def peak_memory() -> int:
    """The most of the host's memory that this process has held so far, in bytes; its worker processes not counted."""
    # Linux counts in ru_maxrss what the process that started this one held; VmHWM counts only this program.
    found = re.search(r"^VmHWM:\s*(\d+) kB", _text("/proc/self/status"), re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # in bytes on macOS, in KiB elsewhere


def machine_memory() -> int:
    """The host's memory in bytes, or what the container that this process runs in may take of it."""
    return min(_installed(), _container_limit())


def free_memory() -> int:
    """The bytes of the host's memory that are free for programs, at most those that the container may take."""
    found = re.search(r"MemAvailable: *(\d+) kB", _text("/proc/meminfo"))
    return min(int(found[1]) * 1024 if found else _installed(), _container_limit())


def _installed() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _container_limit() -> int:
    """The limit of this process's control group; where there is none, a number that is larger than any memory."""
    limit = _text("/sys/fs/cgroup/memory.max").strip()
    return int(limit) if limit.isdecimal() else sys.maxsize


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if Path(path).is_file() else ""
