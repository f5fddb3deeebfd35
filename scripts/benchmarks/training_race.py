"""The training benchmark: ours and its peers take turns on the same text, each in a process of its own."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contenders.training import eole
from benchmarks.environment import PeerError, own_path
from benchmarks.training_process import Contender, Race, Result, run
from benchmarks.training_text import write_race
from transformer_mt.base.wording import counted

PEERS = ["huggingface", "eole"]  # that need a Python of their own
IMPORTED = re.compile("^imported$")
OWN_LOG = re.compile(r"^update (?P<update>\d+): (?P<speed>[\d.]+) target tokens/s$")
SAME_LOSS = 1e-4  # nats a target token: sums in another order differ by less, another function by more

Results = dict[Contender, list[Result]]
Report = dict[str, dict[str, Any]]  # of each contender


def measure_training(
    race: Race, text: Sequence[Path], precisions: Sequence[str], pythons: Mapping[str, str], rounds: int
) -> Report:
    """Print a line a run, then the table. Raises PeerError, CorpusError or TokenizerError."""
    print(
        f"  {counted(race.updates, 'update')} of at most {race.training.tokens_per_batch} positions on the longer side "
        f"after {race.warm_up} untimed ones; {counted(race.threads, 'thread')}; "
        f"{' and '.join(map(str, text)) or 'random words'}"
    )
    write_race(race, text)
    report = summary(compete(line_up(race, precisions, pythons), race, rounds))
    print_table(report)
    return report


def line_up(race: Race, precisions: Sequence[str], pythons: Mapping[str, str]) -> list[Contender]:
    """Ours, the hand-written loops on our batches, and the peers in `pythons`."""
    contenders = []
    command: tuple[str, ...]
    for precision in precisions:
        words = str(race.directory), precision
        command = sys.executable, "-m", "benchmarks.contenders.train_ours", *words
        contenders.append(Contender("ours", precision, command, IMPORTED, OWN_LOG, own_path()))
        command = sys.executable, "-m", "benchmarks.contenders.train_plain", "nn.Transformer", *words
        contenders.append(Contender("nn.Transformer", precision, command, IMPORTED, OWN_LOG, own_path()))
        if "huggingface" in pythons:
            command = pythons["huggingface"], "-m", "benchmarks.contenders.train_plain", "Marian", *words
            contenders.append(Contender("Hugging Face Marian", precision, command, IMPORTED, OWN_LOG))
        if "eole" in pythons and (precision == "fp32" or race.device == "cuda"):
            contenders.append(eole(pythons["eole"], precision, race))
    return contenders


def compete(contenders: Sequence[Contender], race: Race, rounds: int) -> Results:
    """Run all contenders in every round, every other round backwards.

    Raises PeerError if one fails or computes something else than ours.
    """
    results: Results = {contender: [] for contender in contenders}
    for number in range(rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            result = run(contender, race)
            print(f"  round {number + 1}: {contender.title:26} {result.tokens_per_second:,.0f}", flush=True)
            results[contender].append(result)
            check_first_loss(contender, result, results[contenders[0]][0])
    return results


def check_first_loss(contender: Contender, result: Result, ours: Result) -> None:
    """Raises PeerError if a contender's first loss differs from ours: it then computes something else."""
    if result.first_loss is None or ours.first_loss is None:
        return
    if abs(result.first_loss - ours.first_loss) > SAME_LOSS:
        raise PeerError(
            f"{contender.title}: the first loss is {result.first_loss:.6f} and ours {ours.first_loss:.6f}: "
            "it does not compute the same"
        )


def summary(results: Results) -> Report:
    """The results of each contender, by its title.

    Speeds are medians over the rounds, memory is the largest; a ratio is how many times as fast ours was in a round.
    """
    ours = {contender.precision: found for contender, found in results.items() if contender.name == "ours"}
    report: Report = {}
    for contender, found in results.items():
        row: dict[str, Any] = {
            "tokens_per_second": median(result.tokens_per_second for result in found),
            "megabytes": max(result.megabytes for result in found),
            "gpu_megabytes": max(result.gpu_megabytes or 0.0 for result in found) or None,
            "seconds_to_first_update": median(result.seconds_to_first_update for result in found),
            "seconds_after_imports": median(result.seconds_after_imports for result in found),
            "first_loss": found[0].first_loss,
            "rounds": [asdict(result) for result in found],
        }
        if contender.name != "ours":
            both = zip(ours[contender.precision], found, strict=True)
            row["ratios"] = [mine.tokens_per_second / theirs.tokens_per_second for mine, theirs in both]
            row["ratio"] = median(row["ratios"])
        report[contender.title] = row
    return report


def print_table(report: Report) -> None:
    print(f"  {'':26} {'target':>9}  {'ours is':18} {'memory':>8} {'GPU':>8}  {'first update':16} first loss")
    print(f"  {'':26} {'tokens/s':>9}  {'times as fast':18} {'MB':>8} {'MB':>8}  {'s (after imports)'}")
    for title, row in report.items():
        ratio = f"{row['ratio']:.2f} ({min(row['ratios']):.2f}–{max(row['ratios']):.2f})" if "ratio" in row else ""
        gpu = f"{row['gpu_megabytes']:,.0f}" if row["gpu_megabytes"] else ""
        seconds = f"{row['seconds_to_first_update']:.1f} ({row['seconds_after_imports']:.1f})"
        loss = f"{row['first_loss']:.5f}" if row["first_loss"] else ""
        speed, memory = f"{row['tokens_per_second']:,.0f}", f"{row['megabytes']:,.0f}"
        print(f"  {title:26} {speed:>9}  {ratio:18} {memory:>8} {gpu:>8}  {seconds:16} {loss}".rstrip())


def named_python(text: str) -> tuple[str, str]:
    """NAME=PYTHON as a pair, with an absolute path.

    Links are not followed: the Python of a virtual environment is a link, and finds its packages by where it lies.
    """
    name, _, python = text.partition("=")
    if name not in PEERS or not Path(python).is_file():
        raise argparse.ArgumentTypeError(f"{text}: give NAME=PYTHON, NAME of {', '.join(PEERS)}, PYTHON a file")
    return name, str(Path(python).absolute())
