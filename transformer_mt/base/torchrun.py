"""Reads the environment variables that torchrun sets for each process that it starts."""

import os
from typing import NamedTuple

from transformer_mt.base.errors import ConfigError
from transformer_mt.base.wording import cut


class Place(NamedTuple):
    """The numbers of this process and of the processes that were started with it."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def num_processes() -> int:
    """Return how many processes torchrun has started; 0 if it did not start this process. Raises ConfigError."""
    return _number("WORLD_SIZE", 1, 10**6) if "WORLD_SIZE" in os.environ else 0


def place() -> Place | None:
    """Return the place of this process; None if torchrun did not start it. Raises ConfigError for wrong values."""
    if not (size := num_processes()):
        return None
    if not os.environ.get("MASTER_ADDR"):
        raise _not_of_torchrun("MASTER_ADDR", "the address of the machine that runs rank 0")
    _number("MASTER_PORT", 1, 65535)
    local_size = _number("LOCAL_WORLD_SIZE", 1, size) if "LOCAL_WORLD_SIZE" in os.environ else None
    rank, local_rank = _number("RANK", 0, size - 1), _number("LOCAL_RANK", 0, (local_size or size) - 1)
    return Place(rank, size, local_rank, local_size or 1)


def _number(name: str, least: int, most: int) -> int:
    text = os.environ.get(name, "")
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or not least <= int(text) <= most:
        raise _not_of_torchrun(name, f"a number from {least} to {most}")
    return int(text)


def _not_of_torchrun(name: str, expected: str) -> ConfigError:
    found = f"is {cut(repr(os.environ[name]))}" if name in os.environ else "is not set"
    return ConfigError(
        f"the environment variable {name} {found}; it has to be {expected}. WORLD_SIZE is set, as if torchrun had "
        "started this process: start it by torchrun, or unset WORLD_SIZE"
    )
