"""Two GPUs on a machine that has none: tensors on them have a shape and no numbers, and no kernel runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses import FakeTensorMode


class Event:
    """Knows on which GPU it was recorded."""

    def __init__(self, blocking: bool = False) -> None:
        self.device: torch.device | None = None

    def record(self, stream: SimpleNamespace | None = None) -> None:
        self.device = (stream or torch.cuda.current_stream()).device


@contextmanager
def two_gpus(capability: tuple[int, int] = (9, 0)) -> Iterator[None]:
    """What PyTorch says of GPUs and does with them, with the first one as the current one."""
    current = 0

    def set_device(device: torch.device) -> None:
        nonlocal current
        assert device.index in (0, 1)
        current = device.index

    def current_stream(device: torch.device | None = None) -> SimpleNamespace:
        index = current if device is None or device.index is None else device.index
        return SimpleNamespace(device=torch.device("cuda", index))

    with pytest.MonkeyPatch.context() as patch, FakeTensorMode():
        for name, stand_in in {
            "Event": Event,
            "set_device": set_device,
            "current_device": lambda: current,
            "current_stream": current_stream,
            "get_device_name": lambda device: f"pretended GPU {device.index}",
            "get_device_capability": lambda device: capability,
        }.items():
            patch.setattr(torch.cuda, name, stand_in)
        yield
