"""The first signal finishes the update; a second Ctrl-C stops at once."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from transformer_mt.training.distributed import Ranks

STOPPING = (signal.SIGINT, signal.SIGTERM)
PASSED_ON = 5.0  # seconds in which torchrun sends its processes what the terminal has sent them too


@contextmanager
def finish_the_update_first(ranks: Ranks) -> Iterator[Callable[[], int]]:
    """Turn the first SIGINT or SIGTERM into a question to be asked between updates; let a second SIGINT through.

    The question's answer is the number of the signal, or 0, and the same on every rank that asks, whichever of
    them got it. A second SIGINT raises KeyboardInterrupt. A SIGTERM is often sent twice, by a scheduler and by
    what it has started: to stop at once there is SIGKILL, which does no harm.
    """
    received: list[int] = []
    first = 0.0

    def ask(signum: int, frame: FrameType | None) -> None:
        nonlocal first
        is_passed_on = ranks.size > 1 and time.monotonic() < first + PASSED_ON
        if received and signum == signal.SIGINT and not is_passed_on:
            raise KeyboardInterrupt
        if received:
            return
        received.append(signum)
        first = time.monotonic()
        # Not print: it may have been interrupted in the midst of printing. Ctrl-C may have ended the reader too.
        with suppress(OSError):
            if ranks.is_first:
                os.write(2, b"\nStopping after this update; Ctrl-C again stops at once.\n")

    before = {number: signal.signal(number, ask) for number in STOPPING}
    try:
        yield lambda: ranks.max(received[0] if received else 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
