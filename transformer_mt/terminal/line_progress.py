"""Shows how many lines are done: by a progress bar on a terminal; elsewhere, as in a log, by a line now and then."""

import sys
import time
from typing import TYPE_CHECKING, NoReturn, Self

if TYPE_CHECKING:
    from tqdm import tqdm

_EVERY = 30.0  # seconds between two lines in a log


class LineProgress:
    """Shows progress on standard error with the rate, and with the total if the number of lines is known."""

    def __init__(self, num_lines: int | None, every: float = _EVERY) -> None:
        self._num_lines, self._every = num_lines, every
        self._done = 0.0
        self._begun = self._said = time.monotonic()
        self._bar = _bar(num_lines) if sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def more(self, count: float) -> None:
        """Add `count` to the lines that are done. It may be a fraction, if a part of a long line is done."""
        self.reached(self._done + count)

    def reached(self, done: float) -> None:
        """Set the number of lines that are done."""
        if self._bar is not None:
            shown = round(done, 1)
            self._bar.n = int(shown) if shown == int(shown) else shown
            self._bar.update(0)  # redraws the bar, unless it did so a moment ago
        self._done = done
        now = time.monotonic()
        if self._bar is None and now - self._said >= self._every:
            self._said = now
            of = "" if self._num_lines is None else f" of {self._num_lines:,}"
            shown_done = f"{done:,.1f}".removesuffix(".0")
            print(f"{shown_done}{of} lines, {done / (now - self._begun):,.1f} a second", file=sys.stderr, flush=True)


def _bar(num_lines: int | None) -> "tqdm[NoReturn]":
    from tqdm import tqdm  # here, because importing it takes longer than translating a line

    return tqdm(total=num_lines, unit=" lines", dynamic_ncols=True)
