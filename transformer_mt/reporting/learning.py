"""Reads log.jsonl: however long it is, of each curve only so many points are kept as a picture can show."""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from transformer_mt.reporting.gathered import Curve, Log, Missing
from transformer_mt.storage.files import open_regular
from transformer_mt.storage.records import CURVES, LogLine

MOST_STRETCHES = 400
_LONGEST_LINE = 100_000  # bytes


@dataclass
class _Stretch:
    """Neighbouring points of a curve, of which the lowest and the highest are kept, so that no peak gets lost."""

    low: tuple[int, float | None]
    high: tuple[int, float | None]

    def with_next(self, other: "_Stretch") -> "_Stretch":
        return _Stretch(min(self.low, other.low, key=_height), max(self.high, other.high, key=_height))


def _height(point: tuple[int, float | None]) -> float:
    """A value that is not finite counts as the highest, and so is kept."""
    return math.inf if point[1] is None else point[1]


@dataclass
class _Thinned:
    """A curve of which at most `MOST_STRETCHES` stretches are kept; they grow with the number of points."""

    stretches: list[_Stretch] = field(default_factory=list)
    size: int = 1  # points of a stretch
    in_last: int = 0
    first: tuple[int, float | None] | None = None
    last: tuple[int, float | None] | None = None

    def add(self, point: tuple[int, float | None]) -> None:
        self.first, self.last = self.first or point, point
        one = _Stretch(point, point)
        if self.stretches and self.in_last < self.size:
            self.stretches[-1] = self.stretches[-1].with_next(one)
            self.in_last += 1
            return
        if len(self.stretches) == MOST_STRETCHES:  # an even number: all of them are full
            pairs = zip(self.stretches[::2], self.stretches[1::2], strict=True)
            self.stretches = [one.with_next(other) for one, other in pairs]
            self.size *= 2
        self.stretches.append(one)
        self.in_last = 1

    def curve(self) -> Curve:
        """The first point, the last, and the lowest and the highest of each stretch, in the order of the steps."""
        kept = {self.first, self.last, *(point for each in self.stretches for point in (each.low, each.high))}
        points = sorted((point for point in kept if point is not None), key=lambda point: (point[0], _height(point)))
        return Curve([step for step, _ in points], [value for _, value in points])


def read_log(directory: Path) -> Log | Missing:
    """Read log.jsonl of a run. Memory does not grow with its length."""
    path = directory / "log.jsonl"
    thinned = {name: _Thinned() for name in CURVES}
    num_lines = num_unread = 0
    last: LogLine | None = None
    best: LogLine | None = None
    valid_seconds = 0.0
    try:
        for line in _lines(path):
            num_lines += 1
            if line is None:
                num_unread += 1
                continue
            for name in CURVES.keys() & line.model_fields_set:
                thinned[name].add((line.step, getattr(line, name)))
            if "valid_nll" in line.model_fields_set:
                best = line if line.best else best
                valid_seconds += line.valid_seconds or 0.0
            else:
                last = line
    except FileNotFoundError:
        return Missing(f"{directory} has no log.jsonl, in which `train` writes the numbers of training.")
    except OSError as error:
        return Missing(f"{path} cannot be read ({error.strerror}).")
    curves = {name: curve.curve() for name, curve in thinned.items() if curve.stretches}
    if not any(value is not None for curve in curves.values() for value in curve.values):
        return Missing(f"{path} has no numbers yet: `train` writes a line every training.log_every updates.")
    return Log(curves, num_lines, num_unread, last, best, valid_seconds)


def _lines(path: Path) -> Iterator[LogLine | None]:
    """Each line; None for one that `train` has not written, or not to its end."""
    with io.BufferedReader(open_regular(path)) as file:
        while line := file.readline(_LONGEST_LINE):
            try:
                yield LogLine.model_validate_json(line) if line.endswith(b"\n") else None
            except ValueError:
                yield None
