"""The content of run.json as types, and the facts about machine and versions in them."""

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from transformer_mt.base.cores import text
from transformer_mt.version import __version__


def processor() -> str:
    """Return the model of the processor if Linux reports it, otherwise the kind of processor."""
    found = text(Path("/proc/cpuinfo")).partition("model name")[2].partition(": ")[2].partition("\n")[0]
    return found or platform.machine()


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of this package, of Python and of these packages, without importing them."""
    found = {"transformer_mt": __version__, "python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a copy of the package without its metadata
            found[name] = "unknown"
    return found


Count = Annotated[int, Field(ge=0, le=2**53)]
Drawn = Annotated[float, Field(ge=-1e100, le=1e100)]
"""A number for a plot. The bounds are far above fp32's, and allow computations without overflow."""


class Record(BaseModel):
    """An object in a file. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())


class Git(Record):
    """The git checkout from which a run was started."""

    commit: str
    changed: bool = False


class Start(Record):
    """A start of a run, in run.json. The other fields, which are only displayed, are in `model_extra`."""

    model_config = ConfigDict(extra="allow")

    from_update: Count
    time: str = ""
    data: dict[str, str] = {}
    versions: dict[str, str] = {}
    git: Git | None = None


STARTS = TypeAdapter(Annotated[list[Start], Field(min_length=1)])
