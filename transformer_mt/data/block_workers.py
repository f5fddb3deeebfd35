"""Encodes the blocks of a corpus in several processes, and gives the results in the order of the blocks.

Each process gets the tokenizer and the filters once, and then one block after another. Here a thread waits for each of
them, so that a process that is killed is noticed at once, whatever it was doing: its end of the connection is closed.
"""

import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from transformer_mt.data.block_encoding import BlockEncoder, EncodedBlock, Task
from transformer_mt.errors import UserError, WorkerError

_HERE_FIRST = 20  # blocks; starting the processes takes about as long as encoding these
_IN_FLIGHT = 2  # blocks for each process: one that it encodes, and the next one
_PATIENCE = 5.0  # seconds to wait for a process that was killed


def num_cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class BlockWorkers:
    """Processes that encode blocks, `number` of them; they are started when there are many blocks.

    With number=1, and for the first blocks, this process encodes by itself.
    """

    def __init__(self, encoder: BlockEncoder, number: int) -> None:
        self.encoder, self.number = encoder, number
        self._left_for_here = _HERE_FIRST
        self._workers: list[_Worker] = []
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> "BlockWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes at once; what they have begun is lost."""
        for worker in self._workers:
            worker.process.kill()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.process.join(_PATIENCE)
            worker.connection.close()

    def encoded(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, EncodedBlock]]:
        """Yield each task and what became of its block, in order. Few blocks are in memory at a time.

        Raises what reading or encoding raises; WorkerError if a process is killed.
        """
        under_way: deque[tuple[Task, Future[EncodedBlock]]] = deque()
        for task in tasks:
            if self.number == 1 or self._left_for_here:
                self._left_for_here = max(0, self._left_for_here - 1)
                yield task, self.encoder.encode(task)
                continue
            under_way.append((task, self._submit(task)))
            if len(under_way) > _IN_FLIGHT * self.number:
                yield _next_of(under_way)
        while under_way:
            yield _next_of(under_way)

    def _submit(self, task: Task) -> Future[EncodedBlock]:
        if self._threads is None:
            with _without_interrupts():
                for _ in range(self.number):
                    self._workers.append(_Worker(self.encoder))
                    self._idle.put(self._workers[-1])
            self._threads = ThreadPoolExecutor(self.number)
        return self._threads.submit(self._ask, task)

    def _ask(self, task: Task) -> EncodedBlock:
        worker = self._idle.get()
        try:
            return worker.ask(task)
        finally:
            self._idle.put(worker)


class _Worker:
    """A process that encodes, and the connection to it."""

    def __init__(self, encoder: BlockEncoder) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy threads of libraries without their locks
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, encoder), daemon=True, name="prepare-worker")
        self.process.start()
        other.close()  # only the process has it now: when it ends, reading from it ends here

    def ask(self, task: Task) -> EncodedBlock:
        """Let it encode a block. Raises what that raises; WorkerError if the process has ended."""
        try:
            self.connection.send(task)
            answer = self.connection.recv()
        except (EOFError, OSError):
            raise WorkerError(self._how_it_ended()) from None
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, EncodedBlock)
        return answer

    def _how_it_ended(self) -> str:
        self.process.join(_PATIENCE)
        status = self.process.exitcode
        if status is not None and status < 0:
            how = f"was killed (signal {-status}, {signal.Signals(-status).name})"
        else:
            how = f"ended with status {status}"
        why = ", as the system does when memory runs out" if status == -signal.SIGKILL else ""
        return (
            f"a worker process (process {self.process.pid}) {how}{why}. What was finished stays: give the same command "
            "again to go on, with fewer --workers if memory was short"
        )


def _next_of(under_way: deque[tuple[Task, "Future[EncodedBlock]"]]) -> tuple[Task, EncodedBlock]:
    task, future = under_way.popleft()
    return task, future.result()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Keep Ctrl-C waiting; what is started meanwhile never gets it, and so leaves it to this process."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: "Connection[Any, Any]", encoder: BlockEncoder) -> None:
    """Encode blocks until the other end is closed, also because that process was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        answer: EncodedBlock | BaseException
        try:
            task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = encoder.encode(task)
        except UserError as error:
            answer = error
        except Exception as error:
            answer = RuntimeError(f"in a worker process: {error!r}\n{traceback.format_exc()}")
        try:
            connection.send(answer)
        except OSError:
            return
