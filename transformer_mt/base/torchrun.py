"""What torchrun tells each process that it starts, by environment variables."""

import os
from typing import NamedTuple

from transformer_mt.base.errors import ConfigError
from transformer_mt.base.wording import cut


class Place(NamedTuple):
    """The place of this process among those that were started together."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def num_processes() -> int:
    """How many processes torchrun has started; 0 if it did not start this one. Raises ConfigError."""
    return _number("WORLD_SIZE", 1, 10**6) if "WORLD_SIZE" in os.environ else 0


def place() -> Place | None:
    """The place that torchrun gave to this process; None if it did not start it.

    Raises ConfigError if the variables cannot be torchrun's, because ranks would wait for others that do not exist.
    """
    size = num_processes()
    if not size:
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
        f"the environment variable {name} {found}; it has to be {expected}. WORLD_SIZE says that torchrun started "
        "this process: start it by torchrun, or unset WORLD_SIZE"
    )
