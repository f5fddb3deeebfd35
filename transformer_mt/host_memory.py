"""Measures how much memory this process has used, and how much the machine has."""

import os
import re
import resource
import sys
from pathlib import Path


def peak_memory() -> int:
    """Return the most host memory that this process has used so far, in bytes, without its worker processes."""
    # On Linux, ru_maxrss includes what the process that started this one used. VmHWM counts only this program.
    status = Path("/proc/self/status")
    found = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text() if status.is_file() else "", re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # in bytes on macOS, in KiB elsewhere


def machine_memory() -> int:
    """Return the memory of the host in bytes, or the limit of the container that this process runs in."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else ""
    return min(memory, int(text)) if text.isdecimal() else memory
