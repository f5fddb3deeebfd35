"""The first signal finishes the update; a second Ctrl-C stops at once."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Thread
from types import FrameType
from typing import Any, Self, TypeVar

from transformer_mt.training.distributed import Ranks

T = TypeVar("T")

STOPPING = (signal.SIGINT, signal.SIGTERM)
PASSED_ON = 5.0  # seconds in which torchrun sends its processes what the terminal has sent them too
PATIENCE = 0.1  # seconds between two looks whether a signal has come


class StopSignal:
    """Turns the first SIGINT or SIGTERM into a question to be asked between updates; lets a second SIGINT through.

    That raises KeyboardInterrupt. A SIGTERM is often sent twice, by a scheduler and by what it has started: to stop at
    once there is SIGKILL, which does no harm.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._received = 0
        self._time = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._receive) for number in STOPPING}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def number(self) -> int:
        """The number of the signal, or 0: the same on every rank, whichever got it, and every rank has to ask."""
        return self._ranks.max(self._received)

    def unless_it_comes(self, work: Callable[[], T]) -> T | None:
        """The result of long work that every rank does, or None as soon as the signal comes.

        It is done by a thread, because Python heeds no signal while a function of NumPy runs.
        """
        made: Future[T] = Future()

        def make() -> None:
            try:
                made.set_result(work())
            except BaseException as error:
                made.set_exception(error)

        Thread(target=make, daemon=True).start()
        while not self._received and not made.done():
            wait([made], timeout=PATIENCE)
        return None if self.number() else made.result()

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        is_passed_on = self._ranks.size > 1 and time.monotonic() < self._time + PASSED_ON
        if self._received and signum == signal.SIGINT and not is_passed_on:
            raise KeyboardInterrupt
        if self._received:
            return
        self._received, self._time = signum, time.monotonic()
        # Not print: it may have been interrupted in the midst of printing. Ctrl-C may have ended the reader too.
        with suppress(OSError):
            if self._ranks.is_first:
                os.write(2, b"\nStopping after this update; Ctrl-C again stops at once.\n")
