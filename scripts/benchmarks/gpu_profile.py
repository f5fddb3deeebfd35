"""The profile of updates for benchmarks/gpu.py: where their time goes."""

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.contenders.train_ours import Ours
from benchmarks.training_process import Race
from benchmarks.training_text import write_race
from transformer_mt.kernels.device import Device
from transformer_mt.training.update import Update

WARM_UP, UPDATES, TOP = 5, 20, 40
LAUNCH = re.compile(r"^cu(da)?(Launch|GraphLaunch)")

Figures = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """Something that took time, in microseconds."""

    name: str
    start: float
    end: float


def profile_updates(race: Race, precision: str) -> Figures:
    """Measure updates on random words without the profiler, and then with it."""
    if not (race.directory / "race.json").is_file():
        write_race(race, [])
    ours, began = Ours(race.directory, precision), time.perf_counter()
    updates = ours.updates()
    speed(updates, WARM_UP, ours.device)
    report: Figures = {"layout": ours.loader.layout, "seconds_of_warm_up": time.perf_counter() - began}
    report |= speed(updates, UPDATES, ours.device)
    with Calls() as calls:
        speed(updates, UPDATES, ours.device)
    report["operations_of_the_host_an_update"] = calls.number / UPDATES
    on_gpu = race.device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        report["milliseconds_with_the_profiler"] = speed(updates, UPDATES, ours.device)["milliseconds_an_update"]
    if on_gpu:
        report["gpu_megabytes"] = torch.cuda.max_memory_allocated() / 1e6
    events, launches = [], 0
    for one in profiler.events() or ():
        if LAUNCH.match(one.name):
            launches += 1
        elif not on_gpu or (one.device_type == torch.profiler.DeviceType.CUDA and not one.is_user_annotation):
            events.append(Event(one.name, one.time_range.start, one.time_range.end))
    return report | {"launches_an_update": launches / UPDATES, **times(events, UPDATES)}


def speed(updates: Iterator[Update], number: int, device: Device) -> Figures:
    """Make some updates, and say how fast they were."""
    device.synchronize()
    began = time.perf_counter()
    labels = sum(update.num_labels for update in islice(updates, number))
    of_host = time.perf_counter() - began  # until all work is queued
    device.synchronize()
    seconds = time.perf_counter() - began
    figures = {"milliseconds_an_update": seconds, "host_milliseconds_an_update": of_host}
    return {name: 1000 * each / number for name, each in figures.items()} | {"tokens_per_second": labels / seconds}


class Calls(TorchDispatchMode):
    """Counts the operations that the host starts. A graph, which it starts as a whole, is none."""

    number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += not func.is_view
        return func(*args, **kwargs or {})


def times(events: Sequence[Event], updates: int) -> Figures:
    """The TOP kernels, copies and fills by time, how many there are, and how long none of them runs."""
    total, calls = Counter[str](), Counter(event.name for event in events)
    for event in events:
        total[event.name] += event.end - event.start  # type: ignore[assignment]
    if not events:
        return {"note": "the profiler told of no kernels: CUPTI is missing, or may not be used"}
    span, of_all = max(event.end for event in events) - min(event.start for event in events), sum(total.values())
    return {
        "kernels_an_update": len(events) / updates,
        "milliseconds_of_kernels_an_update": of_all / 1000 / updates,
        "idle_share": 1 - busy(events) / span if span else None,
        "kernels": [
            {
                "name": name[:200],
                "calls_an_update": calls[name] / updates,
                "milliseconds_an_update": microseconds / 1000 / updates,
                "share": microseconds / of_all if of_all else None,
            }
            for name, microseconds in total.most_common(TOP)
        ],
    }


def busy(events: Sequence[Event]) -> float:
    """The microseconds in which at least one event is running."""
    sum_, until = 0.0, float("-inf")
    for event in sorted(events, key=lambda one: one.start):
        sum_ += max(0.0, event.end - max(event.start, until))
        until = max(until, event.end)
    return sum_
