"""How much memory a process has taken."""

import resource
import sys


def peak_memory() -> int:
    """The most of the host's memory that this process has held so far, in bytes; its worker processes not counted."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS says bytes, others KiB
