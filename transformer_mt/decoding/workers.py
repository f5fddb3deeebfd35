"""Work shared by several processes of this machine."""

import ctypes
import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from transformer_mt.errors import TranslationError

Task = TypeVar("Task")
Result = TypeVar("Result")

# What the processes do, and with what; they are forked with it, so that it lies in memory once.
_work: Callable[[Any], Any]
_tasks: Sequence[Any]


def map_unordered(work: Callable[[Task], Result], tasks: Sequence[Task], workers: int) -> Iterator[tuple[int, Result]]:
    """(number of the task, its result) of each, as they are done, by at most so many processes.

    Results are pickled; nothing else `work` does is seen here. Raises what `work` raises, and TranslationError if a
    process dies. Where processes cannot be forked, and for a single task, this one does the work.
    """
    if min(workers, len(tasks)) < 2 or sys.platform != "linux":
        yield from enumerate(map(work, tasks))
        return
    global _work, _tasks
    _work, _tasks = work, tasks
    pool = ProcessPoolExecutor(
        min(workers, len(tasks)), multiprocessing.get_context("fork"), initializer=_begin, initargs=()
    )
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of threads and forks together: ours hold no lock that a worker takes.
            warnings.simplefilter("ignore", DeprecationWarning)
            numbers: dict[Future[Any], int] = {pool.submit(_do, number): number for number in range(len(tasks))}
        for future in as_completed(numbers):
            yield numbers[future], future.result()
    except BrokenProcessPool:
        raise TranslationError(
            "a worker process was killed, as happens when memory runs out: ask for fewer --workers, or a smaller "
            "tokens_per_batch"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """In a worker: Ctrl-C is the parent's business, and with the parent it goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(die_with_parent, signal.SIGKILL)


def _do(number: int) -> Any:
    return _work(_tasks[number])
