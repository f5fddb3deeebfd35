"""The part profile: where the time of an update goes, which kernel of attention is faster, and what tuning gains."""

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_parts import own_process
from benchmarks.gpu_parts.report import Measurement, Part
from benchmarks.gpu_parts.settings import Figures, Settings
from benchmarks.gpu_parts.trainee import new_trainee
from benchmarks.training_text import random_rows
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.kernels.device import Device, choose_device
from transformer_mt.preparing.shards import write_encoded
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.update import Update

UPDATES = 20
TOP = 40
PAIRS_OF_TRIAL = 2000
LAUNCH = re.compile(r"^cu(da)?(Launch|GraphLaunch)")
PLAIN, TUNED = "updates", "updates, max-autotune"
MODE = "max-autotune-no-cudagraphs"
NO_KERNELS = "the profiler told of no kernels: CUPTI is missing, or may not be used"


@dataclass(frozen=True)
class Event:
    """Something that took time, in microseconds."""

    name: str
    start: float
    end: float


def part(settings: Settings) -> Part:
    """Tuning comes last, for it takes long; on a CPU updates are not compiled, and there is nothing to tune."""
    kinds = [(PLAIN, "profiling", 120.0), ("attention", "attention", 120.0)]
    if settings.on_gpu:
        kinds.append((TUNED, "profiling", 300.0))
    measurements = [
        Measurement(name, name, seconds, partial(own_process.in_own_process, module, name, settings))
        for name, module, seconds in kinds
    ]
    return Part("profile", measurements, summary)


def summary(found: dict[str, Figures]) -> Figures:
    """How many times as fast updates are if PyTorch tries several kernels for each product, and keeps the fastest."""
    if PLAIN not in found or TUNED not in found:
        return {}
    tuned, plain = (found[name]["without_the_profiler"]["tokens_per_second"] for name in (TUNED, PLAIN))
    return {"tuned_is_times_as_fast": tuned / plain}


def measure(name: str, settings: Settings) -> Figures:
    """Measure updates on random words without the profiler, and then with it."""
    from torch import _inductor  # here, because importing it takes seconds

    mode = MODE if name == TUNED else "default"
    for option, value in _inductor.list_mode_options(mode).items():
        setattr(_inductor.config, option, value)  # as torch.compile(…, mode) does, and for the loss too
    config, vocab_size = settings.shape_or("base32k")
    device = choose_device(settings.device, settings.training_precision, settings.threads)
    training = TrainingConfig(tokens_per_batch=settings.tokens_per_batch)
    rows = islice(random_rows(vocab_size), PAIRS_OF_TRIAL if settings.is_trial else None)
    write_encoded(settings.work / "random", rows, vocab_size, vocab_size)
    trainee = new_trainee(config, vocab_size, EncodedCorpus.load(settings.work / "random"), training, device)
    began, updates = time.perf_counter(), trainee.updates()
    run(updates, 5, device)
    report: Figures = {
        "model": str(config),
        "vocabulary": vocab_size,
        "tokens_per_batch": settings.tokens_per_batch,
        "device": device.description,
        "layout": trainee.loader.layout,
        "compiled": trainee.learner.loss.compiled is not None,
        "mode": mode,
        "updates": UPDATES,
        "seconds_of_warm_up": time.perf_counter() - began,
        "without_the_profiler": run(updates, UPDATES, device),
    }
    activity = ProfilerActivity.CUDA if settings.on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiler:
        report["with_the_profiler"] = run(updates, UPDATES, device)
    if settings.on_gpu:
        report["gpu_megabytes"] = torch.cuda.max_memory_allocated() / 1e6
        return report | on_gpu(profiler)
    return report | on_cpu(profiler)


def run(updates: Iterator[Update], number: int, device: Device) -> Figures:
    """Make some updates, and say how fast they were."""
    device.synchronize()
    began = time.perf_counter()
    labels = [(update.num_labels, update.num_positions) for update in islice(updates, number)]
    device.synchronize()
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "milliseconds_an_update": 1000 * seconds / number,
        "tokens_per_second": sum(real for real, _ in labels) / seconds,
        "real_share_of_target_rows": sum(real for real, _ in labels) / sum(rows for _, rows in labels),
    }


def on_gpu(profiler: profile) -> Figures:
    """What the profiler saw of the GPU."""
    events, launches = [], 0
    for one in profiler.events() or ():  # type: ignore[no-untyped-call]
        if one.device_type == torch.profiler.DeviceType.CUDA and not one.is_user_annotation:
            events.append(Event(one.name, one.time_range.start, one.time_range.end))
        elif LAUNCH.match(one.name):
            launches += 1
    if not events:
        return {"note": NO_KERNELS, "launches_an_update": launches / UPDATES or None, "kernels": []}
    return {"launches_an_update": launches / UPDATES, **times(events, UPDATES)}


def on_cpu(profiler: profile) -> Figures:
    """The operations by the time that they take themselves, in a trial without a GPU."""
    averages = sorted(profiler.key_averages(), key=lambda one: one.self_cpu_time_total, reverse=True)
    total = sum(one.self_cpu_time_total for one in averages)
    rows = [row(one.key, one.count, one.self_cpu_time_total, total, UPDATES) for one in averages[:TOP]]
    return {"note": "operations of the CPU: there is no GPU in this run", "kernels": rows}


def times(events: Sequence[Event], updates: int) -> Figures:
    """The TOP kernels, copies and fills by time, how many there are, and how long none of them runs."""
    total: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in events:
        total[event.name] += event.end - event.start  # type: ignore[assignment]
        calls[event.name] += 1
    span = max(event.end for event in events) - min(event.start for event in events)
    of_all = sum(total.values())
    return {
        "kernels_an_update": len(events) / updates,
        "milliseconds_of_kernels_an_update": of_all / 1000 / updates,
        "idle_share": 1 - busy(events) / span if span else None,
        "kernels": [row(name, calls[name], time, of_all, updates) for name, time in total.most_common(TOP)],
    }


def busy(events: Sequence[Event]) -> float:
    """The microseconds in which at least one event is running."""
    sum_, until = 0.0, float("-inf")
    for event in sorted(events, key=lambda one: one.start):
        sum_ += max(0.0, event.end - max(event.start, until))
        until = max(until, event.end)
    return sum_


def row(name: str, calls: int, microseconds: float, total: float, updates: int) -> Figures:
    return {
        "name": name[:200],
        "calls_an_update": calls / updates,
        "milliseconds_an_update": microseconds / 1000 / updates,
        "share": microseconds / total if total else None,
    }


if __name__ == "__main__":
    own_process.answer(measure)
