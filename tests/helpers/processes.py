"""Real processes: a single one, ranks that know each other, or ranks that torchrun started."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from helpers.tiny import ROOT

PATIENCE = 240.0  # seconds after which something hangs: it takes a few, and more where a machine has other work


def python_path(*directories: Path) -> str:
    """PYTHONPATH with these directories first: packages may lie in those that it names already."""
    return os.pathsep.join([*map(str, directories), *filter(None, [os.environ.get("PYTHONPATH")])])


@dataclass(frozen=True)
class Running:
    """A process whose output goes to files, so that nothing waits for who reads it."""

    process: subprocess.Popen
    out: Path
    err: Path


def said(*running: Running) -> str:
    """All their output, standard error last."""
    return "\n".join(each.out.read_text() + each.err.read_text() for each in running).strip("\n")


def ended(*running: Running, within: float = PATIENCE) -> list[int]:
    """Their exit statuses, less than 0 if a signal killed them; fails unless they end in time."""
    until = time.monotonic() + within
    try:
        return [each.process.wait(max(0.0, until - time.monotonic())) for each in running]
    except subprocess.TimeoutExpired:
        raise AssertionError("hung, having said: " + said(*running)) from None
    finally:
        kill(*running)


def kill(*running: Running) -> None:
    """At once, as nothing can prevent."""
    for each in running:
        each.process.kill()
        each.process.wait()


def start(directory: Path, name: str, *arguments: object, environment=None, stdin=None) -> Running:
    """Python with these arguments; its output to files of this name; its standard input may be subprocess.PIPE."""
    directory.mkdir(parents=True, exist_ok=True)
    out, err = directory / f"{name}.out", directory / f"{name}.err"
    paths = {"PYTHONPATH": python_path(ROOT, ROOT / "tests"), "OMP_NUM_THREADS": "1"}
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env={**os.environ, **paths, **(environment or {})},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
    return Running(process, out, err)


def start_ranks(num_ranks: int, directory: Path, *arguments: object, only_second=()) -> list[Running]:
    """As many processes that know each other, and no agent of torchrun that looks after them.

    The second may be given more arguments than the others.
    """
    ranks = []
    for rank, own in enumerate(rank_environments(num_ranks)):
        more = only_second if rank == 1 else ()
        ranks.append(start(directory, f"rank{rank}", *arguments, *more, environment=own))
    return ranks


def rank_environments(num_ranks: int) -> list[dict[str, str]]:
    """The variables by which ranks find each other on this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = {"WORLD_SIZE": str(num_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(num_ranks)]


def work_of_ranks(num_ranks: int, work: Callable[[], None]) -> None:
    """Do the work on each of as many ranks, none of which sees a GPU.

    They have nothing of what a test has patched: a fork of a process that has threads, or has seen a GPU, may hang.
    """
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=_do_work, args=(work, own)) for own in rank_environments(num_ranks)]
    for process in ranks:
        process.start()
    until = time.monotonic() + PATIENCE
    for process in ranks:
        process.join(max(0.0, until - time.monotonic()))
        process.kill()
    assert [process.exitcode for process in ranks] == [0] * num_ranks


def _do_work(work: Callable[[], None], environment: dict[str, str]) -> None:
    os.environ.update(environment | {"CUDA_VISIBLE_DEVICES": ""})
    work()


def start_torchrun(num_ranks: int, directory: Path, *arguments: object) -> Running:
    """torchrun itself; its log goes to standard error too, where that of the ranks goes."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", num_ranks]
    return start(directory, "torchrun", *launch, *arguments)


def training(experiment: Path, run_dir: Path, *overrides: str) -> list[str]:
    """The arguments of Python that train an experiment."""
    return ["-m", "transformer_mt.train", str(experiment), f"run_dir={run_dir}", *overrides]


def records(run_dir: Path) -> list[dict]:
    """The lines of log.jsonl that tell of updates; none while there is no such file. A line may be half written."""
    path = run_dir / "log.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [record for record in found if "loss" in record]


def wait_until(condition, *running: Running) -> None:
    """Fails if it does not come true in time, or one of the processes ends first."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until or any(each.process.poll() is not None for each in running):
            kill(*running)
            raise AssertionError("it did not come to that: " + said(*running))
        time.sleep(0.01)
