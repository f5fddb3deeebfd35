"""The part train: the speed of ours and of its peers, each run in a process of its own."""

import sys
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from statistics import median

from benchmarks.contenders.train_plain import WITHOUT_CUDNN
from benchmarks.environment import own_path
from benchmarks.gpu_parts.report import LeftOut, Measurement, Part
from benchmarks.gpu_parts.settings import Figures, Settings
from benchmarks.shapes import SHAPES
from benchmarks.training_process import Contender, Race, run
from benchmarks.training_race import IMPORTED, OWN_LOG, SAME_LOSS
from benchmarks.training_text import write_race
from transformer_mt.settings.training_settings import TrainingConfig

OURS, WITHOUT = "ours", ", without cuDNN's attention"
PEERS = {"Hugging Face Marian": "Marian", "nn.Transformer": "nn.Transformer"}  # with what train_plain calls them


def part(settings: Settings) -> Part:
    """Round by round, so that each contender has been measured once before one is measured again."""
    measurements = []
    shapes = [settings.shape] if settings.shape else ["base32k", "big"]
    for number in range(1, settings.rounds + 1):
        for shape in shapes:
            race = race_of(shape, settings)
            for name in contenders(settings):
                measure = partial(measured, race, contender(name, race, settings))
                kind = f"{shape}, {name}"
                measurements.append(Measurement(f"{kind}, round {number}", kind, 90.0, measure))
    return Part("train", measurements, partial(summary, shapes))


def contenders(settings: Settings) -> list[str]:
    """Ours first. cuDNN has no attention in fp32, nor on a CPU; where it has, it makes a plan for each shape: last."""
    variants = [WITHOUT, ""] if settings.on_gpu and settings.training_precision != "fp32" else [""]
    return [OURS, *(f"{peer}{variant}" for variant in variants for peer in PEERS)]


def race_of(shape: str, settings: Settings) -> Race:
    config, vocab_size = SHAPES[shape]
    return Race(
        directory=settings.work / f"train_{shape}",
        model=config,
        training=TrainingConfig(tokens_per_batch=settings.tokens_per_batch),
        vocab_size=vocab_size,
        warm_up=2 if settings.is_trial or not settings.on_gpu else 10,
        updates=4 if settings.is_trial or not settings.on_gpu else 60,
        threads=settings.threads,
        device=settings.device,
    )


def contender(name: str, race: Race, settings: Settings) -> Contender:
    words: tuple[str, ...] = str(race.directory), settings.training_precision
    if name == OURS:
        module, arguments = "train_ours", words
    else:
        module, arguments = "train_plain", (PEERS[name.removesuffix(WITHOUT)], *words)
        arguments += (WITHOUT_CUDNN,) if name.endswith(WITHOUT) else ()
    command = sys.executable, "-m", f"benchmarks.contenders.{module}", *arguments
    return Contender(name, settings.training_precision, command, IMPORTED, OWN_LOG, own_path())


def measured(race: Race, one: Contender, seconds: float) -> Figures:
    """One run. Raises PeerError if it fails, LeftOut if its package is not installed."""
    if "Marian" in one.name and find_spec("transformers") is None:
        raise LeftOut("transformers is not installed")
    began = time.monotonic()
    if not (race.directory / "race.json").is_file():
        write_race(race, [])
    result = run(one, race, seconds - (time.monotonic() - began))
    return {
        "tokens_per_second": result.tokens_per_second,
        "gpu_megabytes": result.gpu_megabytes,
        "megabytes": result.megabytes,
        "seconds_to_first_update": result.seconds_to_first_update,
        "first_loss": result.first_loss,
    }


def summary(shapes: Sequence[str], found: dict[str, Figures]) -> Figures:
    """For each shape and contender, the median of its rounds, and how many times as fast ours was in a round."""
    rounds: dict[str, dict[int, Figures]] = {}
    for name, figures in found.items():
        kind, _, number = name.rpartition(", round ")
        rounds.setdefault(kind, {})[int(number)] = figures
    report: Figures = {}
    for shape in shapes:
        ours = rounds.get(f"{shape}, {OURS}", {})
        for kind, of_rounds in rounds.items():
            if kind.startswith(f"{shape}, "):
                report.setdefault(shape, {})[kind.removeprefix(f"{shape}, ")] = row(of_rounds, ours)
    return report


def row(of_rounds: dict[int, Figures], ours: dict[int, Figures]) -> Figures:
    speeds = [figures["tokens_per_second"] for figures in of_rounds.values()]
    both = [(ours[number], figures) for number, figures in of_rounds.items() if number in ours]
    ratios = [our["tokens_per_second"] / their["tokens_per_second"] for our, their in both]
    losses = [one["first_loss"] for pair in both for one in pair]
    known = [loss for loss in losses if loss is not None]
    return {
        "tokens_per_second": median(speeds),
        "rounds": len(speeds),
        "ours_is_times_as_fast": median(ratios) if ratios else None,
        "ratios": ratios,
        "first_loss_is_ours": max(known) - min(known) <= SAME_LOSS if known else None,
    }
