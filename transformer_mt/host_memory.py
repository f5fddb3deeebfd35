"""How much memory a process has taken, and how much there is."""

import os
import re
import resource
import sys
from pathlib import Path


def peak_memory() -> int:
    """The most of the host's memory that this process has held so far, in bytes; its worker processes not counted."""
    # Linux counts in ru_maxrss what the process that started this one held; VmHWM is of this program alone.
    status = Path("/proc/self/status")
    found = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text() if status.is_file() else "", re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS says bytes, others KiB


def machine_memory() -> int:
    """The host's memory in bytes, or what the container that this process runs in may take of it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else ""
    return min(memory, int(text)) if text.isdecimal() else memory
