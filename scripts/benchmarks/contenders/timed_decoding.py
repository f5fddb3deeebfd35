"""The clock of a contender in the decoding benchmark: runs its passes, and prints how long each took.

    PYTHON -m benchmarks.contenders.decode_NAME JOB        the passes of the job over its text
    PYTHON -m benchmarks.contenders.decode_NAME JOB line   one line of standard input, by the first pass

It runs in the Python of a peer, so it imports nothing of transformer_mt, and nothing that takes long.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

WARM_UP = 16  # untimed lines before a pass; one before sentences that are translated one at a time

Job = dict[str, Any]
Translate = Callable[[list[str], int, int], list[str]]
"""Translates lines with a beam size and a batch size; returns one translation a line, in order."""


def main(load: Callable[[Job], Translate]) -> None:
    """Print the seconds of each pass; and the mean seconds of a sentence by itself, where the job asks for that."""
    path, *mode = sys.argv[1:]
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    first = job["passes"][0]
    if mode == ["line"]:
        line = sys.stdin.readline().rstrip("\n")
        print(load(job)([line], first["beam"], first["size"])[0], flush=True)
        return
    lines = Path(job["text"]).read_text(encoding="utf-8").split("\n")[:-1]
    translate = load(job)
    for number, settings in enumerate(job["passes"]):
        beam, size = settings["beam"], settings["size"]
        translate(lines[:WARM_UP], beam, size)
        began = time.perf_counter()
        found = translate(lines, beam, size)
        print(f"pass {number}: {time.perf_counter() - began:.6f}", flush=True)
        Path(settings["output"]).write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        if job["alone"]:
            translate(lines[:1], beam, size)
            print(f"alone {number}: {seconds_alone(translate, lines[: job['alone']], beam, size):.6f}", flush=True)


def seconds_alone(translate: Translate, lines: Sequence[str], beam: int, size: int) -> float:
    """The mean seconds of a sentence when sentences are translated one at a time."""
    began = time.perf_counter()
    for line in lines:
        translate([line], beam, size)
    return (time.perf_counter() - began) / len(lines)


def batches_by_length(sentences: Sequence[Sequence[Any]], size: int) -> list[list[int]]:
    """Batches of `size` sentence numbers, longest sentences first, for a peer that does not sort by itself."""
    order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]), reverse=True)
    return [order[start : start + size] for start in range(0, len(order), size)]
