"""What numbers depend on besides settings and data: the processor, and the versions of packages."""

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from transformer_mt.version import __version__


def processor() -> str:
    """Return the model of the processor if Linux tells it, otherwise the kind of processor."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.is_file() else ""
    return text.partition("model name")[2].partition(": ")[2].partition("\n")[0] or platform.machine()


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of this package, of Python and of these packages, without importing them."""
    found = {"transformer_mt": __version__, "python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # copied into place, without its metadata
            found[name] = "unknown"
    return found
