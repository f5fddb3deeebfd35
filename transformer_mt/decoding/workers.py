"""Work shared by several processes of this machine."""

import ctypes
import gc
import multiprocessing
import signal
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, TypeVar

from transformer_mt.errors import TranslationError

Task = TypeVar("Task")
Result = TypeVar("Result")

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl


class Workers(Generic[Task, Result]):
    """Processes that do one kind of work.

    They are forked at the first tasks that are worth it, so that all that `work` holds lies in memory once, and as it
    was then. Tasks and results are pickled; nothing else that `work` does is seen here.
    """

    def __init__(self, work: Callable[[Task], Result], number: int) -> None:
        self.work, self.number = work, number if sys.platform == "linux" else 1
        self._pool: ProcessPoolExecutor | None = None

    def map_unordered(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """(number of the task, its result) of each, as they are done; a single task, or worker, by this process.

        Raises what `work` raises, and TranslationError if a process dies.
        """
        if min(self.number, len(tasks)) < 2:
            yield from enumerate(map(self.work, tasks))
            return
        finished = False
        try:
            numbers = self._submit(tasks)
            for future in as_completed(numbers):
                yield numbers[future], future.result()
            finished = True
        except BrokenProcessPool:
            raise TranslationError(
                "a worker process was killed, as happens when memory runs out: ask for fewer --workers, or a smaller "
                "tokens_per_batch"
            ) from None
        finally:
            if not finished:
                self.close()

    def close(self) -> None:
        """End the processes, once they are done with the tasks they have begun. Others are forked when needed."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _submit(self, tasks: Sequence[Task]) -> dict[Future[Result], int]:
        if self._pool is None:
            context = multiprocessing.get_context("fork")
            # The pool does not hold us, so that it ends when nobody does, at the latest when Python ends.
            self._pool = ProcessPoolExecutor(self.number, context, initializer=_begin, initargs=(weakref.ref(self),))
            weakref.finalize(self, self._pool.shutdown)
        with warnings.catch_warnings():
            # Python 3.12 warns of threads and forks together: ours hold no lock that a worker takes.
            warnings.simplefilter("ignore", DeprecationWarning)
            return {self._pool.submit(_do, task): number for number, task in enumerate(tasks)}


_work: Callable[[Any], Any]  # of a worker process


def _begin(workers: "weakref.ref[Workers[Any, Any]]") -> None:
    """In a worker: Ctrl-C is the parent's business, and with the parent it goes."""
    global _work  # noqa: PLW0603
    parents = workers()
    assert parents is not None, "forked while they are"
    _work = parents.work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    gc.freeze()  # to look through what the parent holds takes 0.3 s, and copies the memory that we share


def _do(task: Any) -> Any:
    return _work(task)
