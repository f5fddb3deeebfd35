"""The first signal finishes the update; the second stops at once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def finish_the_update_first() -> Iterator[Callable[[], int]]:
    """Turn the first SIGINT or SIGTERM into a question to be asked between updates; let the second through.

    The question's answer is the number of the signal, or 0. A second signal raises KeyboardInterrupt.
    """
    received: list[int] = []

    def ask(signum: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(signum)
        # Not print: it may have been interrupted in the midst of printing. Ctrl-C may have ended the reader too.
        with suppress(OSError):
            os.write(2, b"\nStopping after this update; Ctrl-C again stops at once.\n")

    before = {number: signal.signal(number, ask) for number in STOPPING}
    try:
        yield lambda: received[0] if received else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
