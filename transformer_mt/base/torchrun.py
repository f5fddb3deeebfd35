"""Reads the environment variables that torchrun sets for each process that it starts."""

import os
from contextlib import suppress
from typing import NamedTuple

from transformer_mt.base.errors import ConfigError


class Place(NamedTuple):
    """The numbers of this process and of the processes that were started with it. By default, it is alone."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Its number among the processes on this machine, which is also the number of its GPU."""
    local_size: int = 1
    """The number of processes on this machine."""


def num_processes() -> int:
    """Return how many processes torchrun has started; 0 if it did not start this process."""
    size = os.environ.get("WORLD_SIZE", "")
    return int(size) if size.isdecimal() else 0


def may_restart() -> bool:
    """Return whether torchrun starts its processes anew after one has ended (its option --max-restarts)."""
    return os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"


def restart_warning() -> str:
    """Return why a restart may fail; empty if none is to come, or if it has its own addresses.

    torchrun of PyTorch 2.13 keeps one store of addresses for all restarts, where a rank reads those of killed ranks.
    """
    if not may_restart() or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return ""
    return (
        "after a restart by torchrun, ranks may look for each other at the addresses of killed ranks. To prevent this, "
        "start torchrun with --rdzv-backend=c10d, and with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its environment"
    )


def place() -> Place | None:
    """Return the place of this process; None if torchrun did not start it. Raises ConfigError for wrong values."""
    if "WORLD_SIZE" not in os.environ:
        return None
    with suppress(KeyError, ValueError):
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")
        rank, size, local_rank, port = (int(os.environ[name]) for name in names)
        local_size, address = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), os.environ["MASTER_ADDR"]
        if 0 <= rank < size and 0 <= local_rank < size and local_size > 0 and 0 < port < 2**16 and address:
            return Place(rank, size, local_rank, local_size)
    raise ConfigError(
        "the environment variable WORLD_SIZE is set, as if torchrun had started this process, but RANK, "
        "LOCAL_RANK, MASTER_ADDR or MASTER_PORT is missing or wrong: start it by torchrun, or unset WORLD_SIZE"
    )
