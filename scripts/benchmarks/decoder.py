"""What each contender of the decoding benchmark does in its process: translate, and say how long that took.

    PYTHON -m benchmarks.decode_NAME JOB        the passes of the job over its text
    PYTHON -m benchmarks.decode_NAME JOB line   one line of standard input, by the first pass

It runs in the Python of a peer: of transformer_mt it needs nothing, and imports nothing else that takes time.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

WARM_UP = 16  # lines that are translated before a pass, untimed; one before sentences alone

Job = dict[str, Any]
Translate = Callable[[list[str], int, int], list[str]]
"""Lines, width of the beam and size of a batch to one translation a line, in order."""


def main(load: Callable[[Job], Translate]) -> None:
    """Print the seconds of each pass, with the mean of one sentence alone where the job asks for it."""
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
    """Of a sentence that comes alone, in the mean."""
    began = time.perf_counter()
    for line in lines:
        translate([line], beam, size)
    return (time.perf_counter() - began) / len(lines)


def batches_by_length(sentences: Sequence[Sequence[Any]], size: int) -> list[list[int]]:
    """Numbers of sentences, longest first, so many together: for a peer that sorts nothing itself."""
    order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]), reverse=True)
    return [order[start : start + size] for start in range(0, len(order), size)]
