"""Trains, as the command does, with so many megabytes of memory more than Python and PyTorch take by themselves.

Arguments: the megabytes, or 0 for no limit; then those of train.
"""

import ctypes
import re
import resource
import sys
from pathlib import Path

import torch

from transformer_mt import train
from transformer_mt.kernels.device import choose_device
from transformer_mt.terminal import cli


def limit(megabytes: int) -> None:
    choose_device("cpu", "fp32", 1)
    layer = torch.nn.Linear(64, 64)
    layer(torch.ones(64, 64)).sum().backward()
    torch.optim.Adam(layer.parameters(), fused=True).step()  # late imports of 200 MB
    arena_max = -8
    ctypes.CDLL(None).mallopt(arena_max, 1)  # else each thread of gloo reserves 64 MB
    taken = int(re.search(r"VmSize:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
    most = taken + megabytes * 1_000_000
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    if int(sys.argv[1]):
        limit(int(sys.argv[1]))
    sys.exit(cli.run(train.main, sys.argv[2:]))
