"""Work shared by several processes of this machine."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, TypeVar

from transformer_mt.errors import TranslationError

Task = TypeVar("Task")
Result = TypeVar("Result")

PARENT_SEEN = 0.2  # seconds between two looks of a worker whether its parent lives


class Workers(Generic[Task, Result]):
    """Processes that do one kind of work.

    They are forked at the first tasks that are worth it, so that all that `work` holds lies in memory once, and as it
    was then. Tasks and results are pickled; nothing else that `work` does is seen here.
    """

    def __init__(self, work: Callable[[Task], Result], number: int) -> None:
        self.work, self.number = work, number if sys.platform == "linux" else 1
        self._pool: ProcessPoolExecutor | None = None
        self._parent = 0  # the id of the process whose children are in the pool

    def map_unordered(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """(number of the task, its result) of each, as they are done; a single task, or worker, by this process.

        Raises what `work` raises, and TranslationError if a process dies, or where the processes are not of this
        process but of the one from which it was forked.
        """
        if min(self.number, len(tasks)) < 2:
            yield from enumerate(map(self.work, tasks))
            return
        if self._pool is not None and self._parent != os.getpid():
            raise TranslationError(
                "the worker processes belong to another process, from which this one was forked: load the model in "
                "each process, after the fork, or ask for workers=1"
            )
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
        """End the processes at once; what they have begun is lost. Others are forked when needed."""
        if self._pool is not None and self._parent == os.getpid():
            # A task may take minutes, and who has pressed Ctrl-C does not want its result.
            for process in list((self._pool._processes or {}).values()):
                process.kill()
            self._pool.shutdown(cancel_futures=True)
        self._pool = None

    def _submit(self, tasks: Sequence[Task]) -> dict[Future[Result], int]:
        if self._pool is None:
            context = multiprocessing.get_context("fork")
            self._parent = os.getpid()
            # The pool does not hold us, so that it ends when nobody does, at the latest when Python ends.
            self._pool = ProcessPoolExecutor(
                self.number, context, initializer=_begin, initargs=(weakref.ref(self), self._parent)
            )
            weakref.finalize(self, _shut_down, self._pool, self._parent)
        with warnings.catch_warnings():
            # Python 3.12 warns of threads and forks together: ours hold no lock that a worker takes.
            warnings.simplefilter("ignore", DeprecationWarning)
            return {self._pool.submit(_do, task): number for number, task in enumerate(tasks)}


def _shut_down(pool: ProcessPoolExecutor, parent: int) -> None:
    if os.getpid() == parent:  # a process that was forked from it has none of its threads and children
        pool.shutdown()


_work: Callable[[Any], Any]  # of a worker process


def _begin(workers: "weakref.ref[Workers[Any, Any]]", parent: int) -> None:
    """In a worker: signals for all are the parent's business, and with the parent it goes."""
    global _work  # noqa: PLW0603
    parents = workers()
    assert parents is not None, "forked while they are"
    _work = parents.work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    gc.freeze()  # to look through what the parent holds takes 0.3 s, and copies the memory that we share


def _end_with(parent: int) -> None:
    """End this process when its parent has ended.

    The system's own signal for that (PR_SET_PDEATHSIG) is sent already when the thread ends that has forked us.
    """
    while os.getppid() == parent:
        time.sleep(PARENT_SEEN)
    os.kill(os.getpid(), signal.SIGKILL)


def _do(task: Any) -> Any:
    return _work(task)
