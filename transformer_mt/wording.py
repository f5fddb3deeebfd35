"""Helps to word messages."""

import re

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun, as in `1 line` or `1,200 lines`. `plural` is needed if it does not just add s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def cut(text: str, longest: int = 80) -> str:
    """Return the beginning of a text for a message. Control characters are written in the form \\x1b."""
    shown = text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in shown)


def visible(line: str) -> str:
    """Return a line of text for a table. Control characters and line separators are written in the form \\x1b."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], line)


def duration(seconds: float) -> str:
    """Write a number of seconds in the two largest units that it has."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 60:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24} days {hours % 24} h"


def two_decimals(number: float) -> str:
    """Write a number with two decimals, or as 1e+06 if it is a million or more."""
    return f"{number:.2f}" if number < 1e6 else f"{number:.0e}"
