"""Processes on this machine that share work."""

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

PARENT_SEEN = 0.2  # seconds between two checks of a worker whether its parent still runs


class Workers(Generic[Task, Result]):
    """Processes that do one kind of work, `work`, on many tasks.

    They are forked when there are first several tasks. So everything that `work` refers to lies in memory only once,
    and the processes see it as it was then. Tasks and results are pickled. Other effects of `work` stay in the process.
    """

    def __init__(self, work: Callable[[Task], Result], number: int) -> None:
        self.work, self.number = work, number if sys.platform == "linux" else 1
        self._pool: ProcessPoolExecutor | None = None
        self._parent = 0  # the id of the process whose children are in the pool

    def map_unordered(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield (number of the task, its result) for each task when it is done.

        This process does the work itself if there is only one task or one worker.

        Raises what `work` raises, and TranslationError if a process dies, or if the workers belong to another process,
        from which this one was forked.
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
        """End the processes at once; what they have begun is lost. New ones are forked when they are needed."""
        if self._pool is not None and self._parent == os.getpid():
            # A task may take minutes, and a user who has pressed Ctrl-C does not want its result.
            for process in list((self._pool._processes or {}).values()):
                process.kill()
            self._pool.shutdown(cancel_futures=True)
        self._pool = None

    def _submit(self, tasks: Sequence[Task]) -> dict[Future[Result], int]:
        if self._pool is None:
            context = multiprocessing.get_context("fork")
            self._parent = os.getpid()
            # The pool refers to us weakly. So it ends when nobody uses us any more, at the latest when Python ends.
            self._pool = ProcessPoolExecutor(
                self.number, context, initializer=_begin, initargs=(weakref.ref(self), self._parent)
            )
            weakref.finalize(self, _shut_down, self._pool, self._parent)
        with warnings.catch_warnings():
            # Python 3.12 warns if a process with threads forks. Our threads hold no lock that a worker takes.
            warnings.simplefilter("ignore", DeprecationWarning)
            return {self._pool.submit(_do, task): number for number, task in enumerate(tasks)}


def _shut_down(pool: ProcessPoolExecutor, parent: int) -> None:
    if os.getpid() == parent:  # a process that was forked from the parent has neither its threads nor its children
        pool.shutdown()


_work: Callable[[Any], Any]  # of a worker process


def _begin(workers: "weakref.ref[Workers[Any, Any]]", parent: int) -> None:
    """Start a worker: it leaves Ctrl-C to its parent, and ends when its parent ends."""
    global _work  # noqa: PLW0603
    parents = workers()
    assert parents is not None, "forked while the Workers exist"
    _work = parents.work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    gc.freeze()  # a collection of the parent's objects takes 0.3 s, and copies the memory that we share


def _end_with(parent: int) -> None:
    """End this process when its parent has ended.

    The signal that Linux has for this (PR_SET_PDEATHSIG) does not serve: it comes already when the thread ends that
    has forked us.
    """
    while os.getppid() == parent:
        time.sleep(PARENT_SEEN)
    os.kill(os.getpid(), signal.SIGKILL)


def _do(task: Any) -> Any:
    return _work(task)
