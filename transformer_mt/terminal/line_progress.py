"""How far a file is: a bar on a terminal; elsewhere, as in a log, a line now and then."""

import sys
import time
from typing import TYPE_CHECKING, NoReturn, Self

if TYPE_CHECKING:
    from tqdm import tqdm

_EVERY = 30.0  # seconds between lines of a log


class LineProgress:
    """On standard error, with the rate, and with what is left where the number of lines is known."""

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
        """So many lines more are done: a fraction, if they are parts of a long line."""
        self.reached(self._done + count)

    def reached(self, done: float) -> None:
        """So many lines are done."""
        if self._bar is not None:
            shown = round(done, 1)
            self._bar.n = int(shown) if shown == int(shown) else shown
            self._bar.update(0)  # shows it, where the last time was long enough ago
        self._done = done
        now = time.monotonic()
        if self._bar is None and now - self._said >= self._every:
            self._said = now
            of = "" if self._num_lines is None else f" of {self._num_lines:,}"
            shown_done = f"{done:,.1f}".removesuffix(".0")
            print(f"{shown_done}{of} lines, {done / (now - self._begun):,.1f} a second", file=sys.stderr, flush=True)


def _bar(num_lines: int | None) -> "tqdm[NoReturn]":
    from tqdm import tqdm  # here, because importing it takes longer than to translate a line

    return tqdm(total=num_lines, unit=" lines", dynamic_ncols=True)
