"""Formats numbers and texts for messages, and shows the progress through lines or pairs."""

import math
import re
import sys
import time
from contextlib import AbstractContextManager
from typing import Any

from transformer_mt.base.errors import UserError

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun, as in `1 line` or `1,200 lines`. Give `plural` if it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def cut(text: str, longest: int = 80) -> str:
    """Return the beginning of a text for a message. Control characters get the form \\x1b."""
    shown = text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in shown)


def beginning(line: str, longest: int) -> str:
    """Return a line, or its first words with … after them if it has more characters."""
    end = line.rfind(" ", longest // 2, longest - 1)
    return line if len(line) <= longest else f"{line[:end]} …" if end > 0 else f"{line[: longest - 1]}…"


def visible(line: str) -> str:
    """Return a line of text for a table. Control characters and line separators get the form \\x1b."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], line)


def warn(*warnings: str | None) -> None:
    """Print warnings on standard error. Empty ones and None are none."""
    for warning in filter(None, warnings):
        print(f"warning: {warning}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Write a number of seconds as text in suitable units, such as 40 s, 5 min, 3 h 20 min or 4 days 6 h."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 60:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24} days {hours % 24} h"


def two_decimals(number: float) -> str:
    """Write a number with two decimals, as 1e+06 if it is a million or more, or as over 1e+09."""
    return f"{number:.2f}" if number < 1e6 else f"{number:.0e}" if number <= 1e9 else "over 1e+09"


_EVERY = 30.0  # seconds between two lines in a log


class LineProgress(AbstractContextManager["LineProgress"]):
    """Shows progress and speed, from now on, on standard error; if the number of lines is known, also the time left."""

    def __init__(
        self,
        num_lines: int | None,
        done_before: int = 0,
        doing: str = "",
        unit: str = "lines",
        is_wanted: bool = True,
    ) -> None:
        """`done_before` is the number of lines that were done earlier. `doing` begins the text, such as "reading: "."""
        self._num_lines, self._doing, self._unit = num_lines, doing, unit
        self._every = _EVERY if is_wanted else math.inf
        self._before, self._done = done_before, float(done_before)
        self._begun = self._said = time.monotonic()
        self._bar: Any = None
        if is_wanted and sys.stderr.isatty():
            from tqdm import tqdm  # here, because importing it takes longer than translating a line

            about = doing.removesuffix(": ") or None  # the bar writes a colon itself
            self._bar = tqdm(desc=about, total=num_lines, initial=done_before, unit=f" {unit}", dynamic_ncols=True)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def more(self, count: float) -> None:
        """Add `count` to the number of lines that are done. It may be a fraction for a part of a long line."""
        self.reached(self._done + count)

    def reached(self, done: float) -> None:
        """Set the number of lines that are done."""
        if self._bar is not None:
            self._bar.n = _shown(done)
            self._bar.update(0)  # redraws the bar, unless it did so a moment ago
        self._done = done
        now = time.monotonic()
        if self._bar is None and now - self._said >= self._every:
            self._said = now
            print(self._line(done, (done - self._before) / (now - self._begun)), file=sys.stderr, flush=True)

    def _line(self, done: float, rate: float) -> str:
        """Return a line for a log. `rate` is in lines a second."""
        shown_done = f"{self._doing}{_shown(done):,}"
        if self._num_lines is None:
            return f"{shown_done} {self._unit}, {rate:,.1f} a second"
        left = f", {duration((self._num_lines - done) / rate)} left" if rate > 0 else ""
        return f"{shown_done} of {self._num_lines:,} {self._unit}, {rate:,.1f} a second{left}"


def _shown(done: float) -> float:
    """Round a number of lines for display: below 10 to tenths, otherwise down to whole lines."""
    tenths = round(done, 1)
    return tenths if done < 10 and tenths % 1 else math.floor(tenths)


# A token, a password, or a query that may be a signature.
_SECRET = re.compile(r"://[^/\s]*@|://\S*:\S*@|https?://\S*\?\S*")


def hidden(text: str) -> str:
    """Return a text without the secrets of a URL in it."""
    return _SECRET.sub("://***", text)


def without_secret(name: str) -> str:
    """Return the name of a file. Raises UserError, which does not show it, for a URL that seems to contain a secret."""
    if _SECRET.search(name):
        raise UserError(
            "this URL has a password, or a query (?…), which may be a signature, and names of files come into messages "
            "and records. Leave it out, and give the secret to the backend, or download the file first"
        )
    return name
