"""Runs a module of fairseq 0.12 on Python 3.11, which refuses dataclasses as defaults; fairseq and its hydra use them.

PYTHON -m benchmarks.contenders.run_fairseq fairseq_cli.train OPTIONS
"""

import dataclasses
import runpy
import sys

get_field = dataclasses._get_field  # type: ignore[attr-defined]


def get_field_of_python_310(cls, name, *others):  # type: ignore[no-untyped-def]
    """Give default objects a hash: Python 3.11 refuses a default without one, because it takes it for mutable."""
    default = getattr(cls, name, None)
    default = getattr(default, "default", default)
    if dataclasses.is_dataclass(default) and type(default).__hash__ is None:
        type(default).__hash__ = object.__hash__
    return get_field(cls, name, *others)


def admit_its_dataclasses() -> None:
    """Make dataclasses accept such defaults. Call it before fairseq is imported."""
    dataclasses._get_field = get_field_of_python_310  # type: ignore[attr-defined]


if __name__ == "__main__":
    admit_its_dataclasses()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
