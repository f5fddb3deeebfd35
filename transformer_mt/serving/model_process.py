"""Models for a server, each in its own process, which is replaced if it dies. This process imports no PyTorch.

A process answers many jobs at once; the Translator translates the sentences of all of them together.
"""

import asyncio
import atexit
import logging
import math
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from transformer_mt.base.errors import CheckpointError, UserError
from transformer_mt.base.system import HANGUP, end_with, without_interrupts
from transformer_mt.decoding.loading import EngineOptions
from transformer_mt.decoding.translator import Translator
from transformer_mt.marian import as_model_dir
from transformer_mt.serving.jobs import Answer, Job, answer
from transformer_mt.serving.json_log import JsonLines
from transformer_mt.settings.reading import load_config

JOBS_AT_ONCE = 64  # in one process; further jobs wait
FEWEST_APART = 8  # texts of a job for each of several processes
SENDS = 2  # times that a job is given to a process, if the first one dies

_log = logging.getLogger(__name__)


class Unavailable(RuntimeError):
    """A model cannot answer a job, through no fault of the asker."""


@dataclass(frozen=True)
class ModelInfo:
    name: str
    pairs: list[tuple[str, str, str | None]]
    """Codes of the source and target language, and the tag of the direction, if the model has tags."""
    engine: str
    hardware: str

    @classmethod
    def of(cls, translator: Translator, directory: Path, options: EngineOptions) -> "ModelInfo":
        """Return the info of a model. Each pair of languages has its shortest tag, or none if it was trained so."""
        tags = translator.tags
        candidates: list[str | None] = [*([] if tags.always else [None]), *sorted(tags.trained, key=len)]
        tag_of: dict[tuple[str, str], str | None] = {}
        for tag in candidates:
            tag_of.setdefault(translator.languages(tag), tag)
        pairs = [(source, target, tag) for (source, target), tag in tag_of.items()]
        name = (directory.name == "model" and directory.parent.name) or directory.name
        return cls(name, pairs, options.engine, translator.engine.hardware)


class _Source(NamedTuple):
    """From what a process loads its model."""

    directories: list[Path]
    options: EngineOptions
    overrides: list[str]
    """Settings of decoding, such as beam_size=2."""


class Model:
    """One model, or an ensemble: its process, and the process that replaces it."""

    info: ModelInfo
    """What the process that gets new jobs has loaded."""

    def __init__(self, directories: Sequence[Path], options: EngineOptions, overrides: Sequence[str] = ()) -> None:
        self._source = _Source([Path(directory).resolve() for directory in directories], options, list(overrides))
        self.pending = 0
        """The number of lines of text that wait or are being translated."""
        self._current: asyncio.Task[_Process]
        self._new: asyncio.Task[_Process] | None = None  # what `replace` loads
        self._replacing, self._is_closed = asyncio.Lock(), False

    async def start(self) -> None:
        """Load the model. Raises a UserError that says why it cannot be loaded."""
        self._current = asyncio.create_task(self._loaded())
        await self._current

    async def answer(self, job: Job) -> Answer:
        """Let a process do a job, or another one if the first dies. If it is cancelled, the process gives the job up.

        Raises a UserError for what the asker did wrong; Unavailable if two processes died, if the model cannot be
        loaded, and after `close`; TimeoutError soon after `job.until`; RuntimeError for a mistake
        in the program, which the log describes.
        """
        if self._is_closed:
            raise Unavailable("the server is ending: ask again later")
        num_lines = sum(text.count("\n") + 1 for text in job.texts)
        self.pending += num_lines
        try:
            for _ in range(SENDS):
                process = await self._ready()
                with suppress(_Died):
                    return await process.ask(job)
        finally:
            self.pending -= num_lines
        raise Unavailable("the process of the model died twice with this job: ask again later, perhaps with less text")

    async def replace(self) -> None:
        """Load the model again, and give further jobs to the new process; the old one ends when it has done its own.

        If the model cannot be loaded, the log says why, and the old process stays.
        """
        async with self._replacing:
            if self._is_closed:
                return
            new = self._new = asyncio.create_task(self._loaded())
            await asyncio.wait([new])
            if new.cancelled():  # by `close`
                return
            if error := new.exception():
                _log.error("the model stays as it was, because it cannot be loaded again: %s", error)
                return
            old, self._current = self._current, new
            _log.info("%s: the model is loaded again", self._source.directories[0])
            await _end(old)

    async def close(self) -> None:
        """Take no more jobs, finish those that were accepted, and end the process."""
        self._is_closed = True
        if self._new is not None:
            self._new.cancel()
        async with self._replacing:
            while self.pending:
                await asyncio.sleep(0.02)
            self._current.cancel()  # nobody waits for it, if it is still being loaded
            await _end(self._current)

    async def _ready(self) -> "_Process":
        """The process for the next job, when it is ready. If it has died, or could not load the model, a new one."""
        if self._current.done() and (self._current.exception() or not self._current.result().is_alive):
            self._renew()
        while True:
            current = self._current
            try:
                process = await asyncio.shield(current)  # others wait for it too, if this asker goes away
            except UserError as error:
                raise Unavailable(f"the model cannot be loaded again: {error}") from None
            if current is self._current:  # else it was replaced meanwhile
                return process

    def _renew(self) -> None:
        def log_error(task: "asyncio.Task[_Process]") -> None:
            if not task.cancelled() and (error := task.exception()):
                _log.error("the model cannot be loaded again: %s", error)

        self._current = asyncio.create_task(self._loaded())
        self._current.add_done_callback(log_error)

    def _died(self, process: "_Process") -> None:
        if self._current.done() and not self._current.exception() and self._current.result() is process:
            _log.error("the process of the model died: another one takes its place")
            self._renew()

    async def _loaded(self) -> "_Process":
        process = _Process(self._source, self._died)
        try:
            info = await process.info
            if hasattr(self, "info") and info.pairs != self.info.pairs:
                raise CheckpointError(
                    f"{process.directory}: the model translates between other languages, or with other tags, than "
                    "before: start the server again"
                )
            self.info = info
        except BaseException:
            await process.kill()
            raise
        return process


class Copies:
    """One model in several processes of one thread each on a CPU: one translates while others wait for their clients.

    A GPU has one process. Methods are those of Model.
    """

    def __init__(
        self, directories: Sequence[Path], options: EngineOptions, overrides: Sequence[str] = (), number: int = 1
    ) -> None:
        self._model = partial(Model, directories, replace(options, workers=1), overrides)
        self._models, self._number = [self._model()], number

    @property
    def info(self) -> ModelInfo:
        return self._models[0].info

    async def start(self) -> None:
        await self._models[0].start()
        if self.info.hardware == "CPU":
            others = [self._model() for _ in range(self._number - 1)]
            await asyncio.gather(*(model.start() for model in others))
            self._models += others

    async def answer(self, job: Job) -> Answer:
        """Let those do the job that have least to do; several, if it has many texts."""
        models = sorted(self._models, key=lambda model: model.pending)
        number = min(len(models), len(job.texts) // FEWEST_APART)
        is_wrong = job.prefixes is not None and len(job.prefixes) != len(job.texts)  # the model says what is wrong
        if number < 2 or is_wrong:
            return await models[0].answer(job)
        answers = await asyncio.gather(
            *(model.answer(job.part(at, number)) for at, model in enumerate(models[:number]))
        )
        return tuple(chain.from_iterable(answers))

    async def replace(self) -> None:
        await asyncio.gather(*(model.replace() for model in self._models))

    async def close(self) -> None:
        await asyncio.gather(*(model.close() for model in self._models))


async def _end(task: "asyncio.Task[_Process]") -> None:
    await asyncio.wait([task])
    if not task.cancelled() and not task.exception():  # else it never began
        await task.result().end()


class _Died(Exception):
    """The process died before it answered."""


class _Process:
    """A process that holds the model, and the jobs that it has not yet answered."""

    def __init__(self, source: _Source, died: "Callable[[_Process], None]") -> None:
        """`died` is called when it dies without having been asked to end."""
        self.directory, context = source.directories[0], multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, source, os.getpid()))
        with without_interrupts():
            self.process.start()
        other.close()  # now only the process has this end, so reading ends when it ends
        atexit.register(self.process.kill)  # else Python would wait for it at its end
        self._loop, self._died, self._is_ending = asyncio.get_running_loop(), died, False
        self.info: asyncio.Future[ModelInfo] = self._loop.create_future()
        self.is_alive, self._has_ended = True, asyncio.Event()
        self._jobs: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = count()
        self._sender = ThreadPoolExecutor(1)  # since the process may take long to read a large job
        threading.Thread(target=self._read, daemon=True).start()

    async def ask(self, job: Job) -> Answer:
        """Let the process do a job. Raises _Died, and the errors of `Model.answer`."""
        if not self.is_alive:
            raise _Died
        number = next(self._numbers)
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._jobs[number] = future
        self._sender.submit(self._send, (number, job))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if self.is_alive:
                self._sender.submit(self._send, (number, None))
            await asyncio.wait([future])  # until the process has given the job up, it counts as pending
            future.exception()  # asked for, as asyncio logs an error that nobody has seen
            raise

    async def end(self) -> None:
        """End it when all jobs are answered."""
        self._is_ending = True
        if self.is_alive:
            self._sender.submit(self._send, None)  # it answers first what was sent before
        await self._has_ended.wait()

    async def kill(self) -> None:
        self._is_ending = True
        self.process.kill()
        await self._has_ended.wait()

    def _send(self, message: tuple[int, Job | None] | None) -> None:
        with suppress(OSError):  # it has died, as `_read` says
            self._connection.send(message)

    def _read(self) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            with suppress(EOFError, OSError):
                while True:
                    self._loop.call_soon_threadsafe(self._take, *self._connection.recv())
            self.process.join()
            self._loop.call_soon_threadsafe(self._take_end)

    def _take(self, number: int | None, reply: "ModelInfo | Answer | Exception") -> None:
        """Take the answer to a job, or, without a number, that to loading the model."""
        future: asyncio.Future[Any] = self.info if number is None else self._jobs.pop(number)
        if future.done():  # who asked has gone away
            return
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    def _take_end(self) -> None:
        self.is_alive = False
        self._sender.shutdown()
        self._connection.close()
        atexit.unregister(self.process.kill)
        status = self.process.exitcode
        if not self.info.done():
            self.info.set_exception(
                CheckpointError(
                    f"{self.directory}: the process that loaded the model ended with status {status}, perhaps because "
                    "memory ran out: see the log above, or use a smaller model or fewer models"
                )
            )
        for future in self._jobs.values():
            if not future.done():
                future.set_exception(_Died())
        self._has_ended.set()
        if not self._is_ending:
            self._died(self)


def _serve(connection: "Connection[Any, Any]", source: _Source, parent: int) -> None:
    """Load the model and do jobs in a process of its own, until None comes or the parent ends."""
    for signal_number in filter(None, (signal.SIGINT, signal.SIGTERM, HANGUP)):  # they are for the parent
        signal.signal(signal_number, signal.SIG_IGN)
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    logging.basicConfig(level=logging.WARNING, handlers=[JsonLines()])
    try:
        translator = Translator.load(source.directories, **vars(source.options))
        if source.overrides:
            path = as_model_dir(source.directories[0]) / "config.yaml"
            translator.decoding = load_config(path, source.overrides, "decoding").decoding
    except UserError as error:
        connection.send((None, error))
        return
    logging.disable(logging.WARNING)  # from here on, warnings may quote what an asker wrote
    connection.send((None, ModelInfo.of(translator, source.directories[0], source.options)))
    with translator:
        _do_jobs(connection, translator)


def _do_jobs(connection: "Connection[Any, Any]", translator: Translator) -> None:
    """Do jobs until None comes. A number without a job means that nobody waits any more for the job of this number."""
    sending, jobs = threading.Lock(), dict[int, Job]()

    def work(number: int, job: Job) -> None:
        reply = _reply(translator, job)
        with sending:
            del jobs[number]
            connection.send((number, reply))

    with ThreadPoolExecutor(JOBS_AT_ONCE) as threads:
        while (message := connection.recv()) is not None:
            number, job = message
            if job is not None:
                jobs[number] = job
                threads.submit(work, number, job)
            elif left := jobs.get(number):
                left.until = -math.inf


def _reply(translator: Translator, job: Job) -> Answer | UserError | RuntimeError | TimeoutError:
    try:
        return answer(translator, job)
    except UserError as error:
        if type(error) is not UserError:
            return error
        fault: Exception = error  # a worker process of the engine was killed
    except TimeoutError as error:  # nobody waits for the answer
        return error
    except Exception as error:
        fault = error
    # Without the message of the error and without the job, which may hold texts of the asker.
    places = "".join(traceback.format_tb(fault.__traceback__))
    _log.error("a job failed with %s:\n%s", type(fault).__name__, places)
    return RuntimeError(f"the model failed at this job ({type(fault).__name__}): the log of the server says where")
