"""Worker processes on this machine that share tasks, and end at once with this process, or when they are not needed."""

import gc
import multiprocessing
import os
import signal
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Generic, Literal, TypeVar

from transformer_mt.base.errors import TranslationError, UserError
from transformer_mt.base.system import CAN_FORK, end_with, without_interrupts

Task = TypeVar("Task")
Result = TypeVar("Result")

_TASKS_EACH = 2  # tasks of `map` for each process at a time: the current task and the next one
_starting = threading.Lock()


class Workers(Generic[Task, Result]):
    """Processes that call `work` on many tasks. They start when there are several tasks for the first time.

    With `start="fork"`, the processes share the memory of everything that `work` refers to, in its state at the start.
    This needs Linux; elsewhere this process does the work itself. With `start="spawn"`, each process gets a copy of
    `work`. Tasks and results are pickled. Other effects of `work` stay in its process.

    An error of `work` is raised in this process, and UserError if a worker is killed. Then all workers end, and new
    ones start with the next tasks. Raises TranslationError in a process that was forked from the one that started the
    workers.
    """

    def __init__(
        self,
        work: Callable[[Task], Result],
        number: int,
        start: Literal["fork", "spawn"] = "fork",
        in_one_thread: bool = False,
    ) -> None:
        """With `in_one_thread`, tasks that this process does for any thread but its main one are done in one thread."""
        self.work, self.number = work, number if start == "spawn" or CAN_FORK else 1
        self._start, self._parent, self._in_one_thread = start, os.getpid(), in_one_thread
        self._executor: ProcessPoolExecutor | None = None
        self._thread: ThreadPoolExecutor | None = None

    def map_unordered(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield (number of the task, its result) as soon as it is done. A single task, or worker, needs no process."""
        if min(self.number, len(tasks)) < 2:
            yield from enumerate(map(self._work_here, tasks))
            return
        with self._ended_unless_done():
            numbers = {self._submit(task): number for number, task in enumerate(tasks)}
            for future in as_completed(numbers):
                yield numbers[future], future.result()

    def map(self, tasks: Iterable[Task], done_here: int = 0) -> Iterator[tuple[Task, Result]]:
        """Yield each task and its result, in order. Two tasks for each process are in memory at a time.

        This process does the first `done_here` tasks itself, because few tasks take less time than starting processes.
        """
        waiting: deque[tuple[Task, Future[Result]]] = deque()
        with self._ended_unless_done():
            for number, task in enumerate(tasks):
                if self.number == 1 or (self._executor is None and number < done_here):
                    yield task, self.work(task)
                    continue
                waiting.append((task, self._submit(task)))
                if len(waiting) > _TASKS_EACH * self.number:
                    first, future = waiting.popleft()
                    yield first, future.result()
            yield from ((task, future.result()) for task, future in waiting)

    def close(self) -> None:
        """End the processes at once, in the middle of their tasks. New processes start when they are needed."""
        executor, self._executor = self._executor, None
        if executor is not None:
            _end(executor, self._parent)
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False)

    def _work_here(self, task: Task) -> Result:
        if not self._in_one_thread or threading.current_thread() is threading.main_thread():
            return self.work(task)
        with _starting:
            thread = self._thread = self._thread or ThreadPoolExecutor(1)
        try:
            future = thread.submit(self.work, task)
        except RuntimeError:  # the main thread has ended, or another thread has closed these workers
            return self.work(task)
        return future.result()

    def _submit(self, task: Task) -> Future[Result]:
        with _starting, warnings.catch_warnings():
            # Python 3.12 warns if a process with threads forks. Our threads hold no lock that a worker takes.
            warnings.simplefilter("ignore", DeprecationWarning)
            if self._executor is None:
                self._parent, context = os.getpid(), multiprocessing.get_context(self._start)
                self._executor = ProcessPoolExecutor(self.number, context, _begin, (self.work, self._parent))
                # The executor has no reference to this object. So it ends when this object is deleted, or Python ends.
                weakref.finalize(self, _end, self._executor, self._parent)
            if self._parent != os.getpid():
                raise TranslationError(
                    "the worker processes belong to another process, from which this one was forked: load the model in "
                    "each process, after the fork, or set workers=1"
                )
            with without_interrupts():  # not above, because the start of Python's resource tracker would end the delay
                return self._executor.submit(_work_on, task)

    @contextmanager
    def _ended_unless_done(self) -> Iterator[None]:
        """End the processes after an error, or if the caller stops early, because a task may take minutes."""
        try:
            yield
        except BrokenProcessPool:
            self.close()
            raise UserError(
                "a worker process was killed, perhaps because memory ran out: give the same command again with fewer "
                "processes, by OMP_NUM_THREADS=1 before it, or by a lower --workers if the command has it"
            ) from None
        except BaseException:
            self.close()
            raise


def _end(executor: ProcessPoolExecutor, parent: int) -> None:
    """Kill the processes, unless this is a fork of the process that started them."""
    if parent == os.getpid():
        for process in list((executor._processes or {}).values()):
            process.kill()
        if results := executor._result_queue:  # its thread would wait for ever for the rest of a result
            results._writer.close()  # type: ignore[attr-defined]
        executor.shutdown(cancel_futures=True)


_work: Callable[[Any], Any]  # of this process, if it is a worker


def _begin(work: Callable[[Any], Any], parent: int) -> None:
    """Begin to work in a worker process, which ends with its parent."""
    global _work  # noqa: PLW0603 # a process pool hands nothing from its initializer to its tasks
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # comes to the parent, too, which decides when all end
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    gc.freeze()  # a collection of objects of the parent takes 0.3 s, and copies the memory that a fork shares


def _work_on(task: Any) -> Any:
    return _work(task)
