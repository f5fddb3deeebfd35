"""Shows how many lines or pairs are done: on a terminal by a bar; elsewhere, as in a log, by a line now and then."""

import sys
import time
from typing import TYPE_CHECKING, NoReturn, Self

from transformer_mt.wording import duration

if TYPE_CHECKING:
    from tqdm import tqdm

_EVERY = 30.0  # seconds between two lines in a log


class LineProgress:
    """Shows progress on standard error with the rate; with the total and the time left if it knows how many there are.

    The rate counts the lines that are done from now on.
    """

    def __init__(
        self, num_lines: int | None, every: float = _EVERY, done_before: int = 0, doing: str = "", unit: str = "lines"
    ) -> None:
        """`done_before` is how many of the lines were done earlier. `doing` says what is done, if not translating."""
        self._num_lines, self._every, self._doing, self._unit = num_lines, every, doing, unit
        self._before, self._done = done_before, float(done_before)
        self._begun = self._said = time.monotonic()
        self._bar = _bar(num_lines, done_before, doing, unit) if sys.stderr.isatty() else None

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
            print(self._line(done, (done - self._before) / (now - self._begun)), file=sys.stderr, flush=True)

    def _line(self, done: float, rate: float) -> str:
        """What a log says: `rate` is in lines a second."""
        shown_done = f"{self._doing}{done:,.1f}".removesuffix(".0")
        if self._num_lines is None:
            return f"{shown_done} {self._unit}, {rate:,.1f} a second"
        left = f", {duration((self._num_lines - done) / rate)} left" if rate > 0 else ""
        return f"{shown_done} of {self._num_lines:,} {self._unit}, {rate:,.1f} a second{left}"


def _bar(num_lines: int | None, done_before: int, doing: str, unit: str) -> "tqdm[NoReturn]":
    from tqdm import tqdm  # here, because importing it takes longer than translating a line

    return tqdm(desc=doing.strip() or None, total=num_lines, initial=done_before, unit=f" {unit}", dynamic_ncols=True)
