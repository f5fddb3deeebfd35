"""Measures a part within its time, and writes what is known of it after each measurement."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import PeerError
from benchmarks.gpu_parts.settings import Figures, Settings
from transformer_mt.base.errors import UserError
from transformer_mt.storage.files import read_json, write_whole

Clock = Callable[[], float]  # seconds


class LeftOut(Exception):
    """A measurement that this machine cannot make, and why. A part is complete without it."""


@dataclass(frozen=True)
class Measurement:
    """One thing to measure; a part has several."""

    name: str
    kind: str
    """Measurements of one kind take equally long."""
    seconds: float
    """What it takes at most, as long as none of its kind has been made."""
    measure: Callable[[float], Figures]
    """Measures, within the seconds that it is given. Raises LeftOut if this machine cannot."""


@dataclass(frozen=True)
class Part:
    """Measurements, and what follows from all that were made so far."""

    name: str
    measurements: Sequence[Measurement]
    summary: Callable[[dict[str, Figures]], Figures] = lambda found: {}
    """Takes the figures of each measurement by its name."""


def is_finished(path: Path, settings: Settings) -> bool:
    """Whether this report is there and complete. Raises UserError if it is of other settings, or no report."""
    return bool(_earlier(path, settings).get("complete"))


def measure_part(
    part: Part, settings: Settings, describe: Callable[[], Figures], clock: Clock = time.monotonic
) -> Figures:
    """Make the measurements that the part's report lacks, as far as `settings.minutes` allow; return the report.

    The report is written after each. One that fails is noted, and the next one is made.
    """
    path = settings.out / f"{part.name}.json"
    progress = _Progress(part, settings, clock, clock(), _earlier(path, settings))
    head = {"part": part.name, **describe(), "settings": settings.in_report}
    write_report(path, head | progress.report())
    for measurement in part.measurements:
        if measurement.name not in progress.found:
            progress.make(measurement)
            write_report(path, head | progress.report())
    return progress.report()


class _Progress:
    """What is known of a part so far."""

    def __init__(self, part: Part, settings: Settings, clock: Clock, began: float, earlier: Figures) -> None:
        self.part, self.settings, self.clock, self.began = part, settings, clock, began
        self.seconds_before: float = earlier.get("seconds", 0.0)
        self.found: dict[str, Figures] = dict(earlier.get("measurements", {}))
        self.left_out: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.longest: dict[str, float] = {}  # seconds of a kind, as far as it was made

    def make(self, measurement: Measurement) -> None:
        """Make the measurement if the time suffices, and note what came of it."""
        name, began = measurement.name, self.clock()
        left = self.began + 60 * self.settings.minutes - began
        if left < self.longest.get(measurement.kind, measurement.seconds):
            print(f"  {name}: not measured, only {max(0.0, left):.0f} s are left", flush=True)
            return
        try:
            figures = measurement.measure(left)
            seconds = self.clock() - began
            self.longest[measurement.kind] = max(self.longest.get(measurement.kind, 0.0), seconds)
            self.found[name] = {**figures, "seconds": round(seconds, 1)}
            print(f"  {name}: {seconds:.1f} s", flush=True)
        except LeftOut as reason:
            self.left_out[name] = str(reason)
            print(f"  {name}: left out, {reason}", flush=True)
        except Exception as error:  # whatever it is, the other measurements are wanted
            self.failed[name] = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            print(f"  {name}: failed. {self.failed[name]}", flush=True)

    def report(self) -> Figures:
        done = self.found.keys() | self.left_out.keys() | self.failed.keys()
        not_measured = [one.name for one in self.part.measurements if one.name not in done]
        return {
            "complete": not not_measured and not self.failed,
            "seconds": round(self.seconds_before + self.clock() - self.began, 1),
            "summary": self.part.summary(self.found),
            "measurements": self.found,
            "left_out": self.left_out,
            "failed": self.failed,
            "not_measured": not_measured,
        }


def _earlier(path: Path, settings: Settings) -> Figures:
    """The report that is there already; empty if there is none. Raises UserError if it cannot be gone on with."""
    if not path.exists():
        return {}
    advice = "delete it, or name another --out"
    try:
        report: Figures = read_json(path)
        asked = report["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PeerError(f"{path}: is not a report of this command ({error}): {advice}") from None
    if asked != settings.in_report:
        changed = ", ".join(key for key, value in settings.in_report.items() if asked.get(key) != value)
        raise PeerError(f"{path}: was measured with other settings ({changed}): {advice}")
    return report


def write_report(path: Path, report: Figures) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(_plain(report), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    """The same without numbers that JSON does not know: null stands for what is infinite or not a number."""
    match value:
        case dict():
            return {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
