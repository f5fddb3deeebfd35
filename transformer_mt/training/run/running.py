"""What happens around the updates of a run: signals, skipped updates, the log, checkpoints."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any, Self, TypeVar

import numpy as np
import torch

from transformer_mt.base.errors import TrainingError
from transformer_mt.base.wording import counted
from transformer_mt.batches.batching import Pairs
from transformer_mt.batches.loader import Loader, Position, split_evenly
from transformer_mt.batches.packing import MicroBatch
from transformer_mt.kernels.device import Device
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.learning import Learner
from transformer_mt.training.progress import Progress, compare_with_best, is_due
from transformer_mt.training.run.checkpoint import Tensors, point_best_at, prune, save_checkpoint
from transformer_mt.training.run.run_log import CALMER, RunLog
from transformer_mt.training.run.validation import ValidationScores
from transformer_mt.training.update import Update

T = TypeVar("T")

STOPPING = (signal.SIGINT, signal.SIGTERM)
PASSED_ON = 5.0  # seconds in which torchrun repeats to its processes a signal that the terminal has sent them
PATIENCE = 0.1  # seconds between two checks for a signal


class StopSignal:
    """Remembers the first SIGINT or SIGTERM, so that training can ask for it between updates.

    A second SIGINT raises KeyboardInterrupt. A second SIGTERM does nothing, because schedulers often send two.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._received = 0
        self._time = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._receive) for number in STOPPING}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def number(self) -> int:
        """The number of the signal, or 0. Every rank must call this, and gets the same number."""
        return int(self._ranks.max(self._received))

    def unless_it_comes(self, work: Callable[[], T]) -> T | None:
        """The result of long work that every rank does, or None as soon as the signal comes.

        A thread does the work, because Python handles no signal while a NumPy function runs. If there is no memory for
        another thread, this one does the work, and the signal has to wait.
        """
        made: Future[T] = Future()

        def make() -> None:
            try:
                made.set_result(work())
            except BaseException as error:
                made.set_exception(error)

        try:
            Thread(target=make, daemon=True).start()
        except RuntimeError:
            make()
        while not self._received and not made.done():
            wait([made], timeout=PATIENCE)
        return None if self.number() else made.result()

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        is_passed_on = self._ranks.size > 1 and time.monotonic() < self._time + PASSED_ON
        if self._received and signum == signal.SIGINT and not is_passed_on:
            raise KeyboardInterrupt
        if self._received:
            return
        self._received, self._time = signum, time.monotonic()
        # Not `print`, which the signal may have interrupted. Ctrl-C may also have ended the reader of standard error.
        with suppress(OSError):
            if self._ranks.is_first:
                os.write(2, b"\nStopping after this update; Ctrl-C again stops at once.\n")


MOST_IN_A_ROW = 10  # then training stops
MOST_IN_A_ROW_FP16 = 40  # each halves the scale of the loss, from 2^16 or somewhat more: then it was not the scale


def count_update(
    progress: Progress, update: Update, limit: int, lines_of: Callable[[Pairs], str], ranks: Ranks
) -> Progress:
    """Progress that counts split micro-batches and skipped updates, whose loss or gradient is not finite.

    Raises TrainingError after `limit` skipped updates in a row. `lines_of` describes where pairs are in the text.
    """
    progress = replace(progress, split=progress.split + update.splits)
    if update.numbers.is_finite:
        return replace(progress, skipped_in_a_row=0)
    in_a_row = progress.skipped_in_a_row + 1
    if in_a_row < limit:
        return replace(progress, skipped=progress.skipped + 1, skipped_in_a_row=in_a_row)
    pairs = np.concatenate(ranks.gather(update.pairs.numpy()))
    raise TrainingError(
        f"loss or gradient of {counted(limit, 'update')} in a row was not finite. The last one, update "
        f"{update.step}, was on {lines_of(pairs)}. None of them changed the weights. Look at "
        f"these lines; {CALMER}"
    )


class Run(ExitStack):
    """A run that starts or continues from `progress`. `lines_of` describes where pairs are in the text."""

    def __init__(
        self,
        run_dir: Path,
        learner: Learner,
        tokenizer: Tokenizer,
        progress: Progress,
        lines_of: Callable[[Pairs], str],
    ) -> None:
        super().__init__()
        self.learner, self.settings, self.ranks = learner, learner.settings, learner.ranks
        self._run_dir, self._digest, self._lines_of = run_dir, tokenizer.digest, lines_of
        self._saved, self._device = progress, learner.device
        self._stop = StopSignal(self.ranks)
        self._log = RunLog(run_dir, learner, progress, tokenizer.target_vocab_size)
        self._unread = list[tuple[Progress, Update]]()
        self._started, self._began = time.perf_counter() - progress.elapsed, 0.0  # when training and this update began
        self.signal = 0

    def __enter__(self) -> Self:
        for each in (self._stop, self._log):
            self.enter_context(each)
        return self

    def batches(self, loader: Loader, progress: Progress) -> Iterator[tuple[list[MicroBatch], Position]]:
        """This rank's micro-batches of each update, and the position after it; an endless iterator.

        It ends only if a signal comes while the order of an epoch is made. Then `signal` is the signal's number.
        """
        size = self.ranks.size
        updates, stage = loader.updates(progress.position, self._stop.unless_it_comes), progress.position.stage
        for step, (pairs, position) in enumerate(updates, start=progress.step + 1):
            self._began = time.perf_counter()
            numbered = islice(enumerate(split_evenly(pairs, size)), self.ranks.rank, None, size)
            yield [loader.batch(part, step, number) for number, part in numbered], position
            if position.stage > stage:
                stage = position.stage
                self.ranks.say(f"stage {stage + 1} of {len(loader.stages)} begins after update {step}")
        self.signal = self._stop.number()

    def after_update(self, progress: Progress, update: Update) -> Progress:
        """Count and log an update; `progress` has the step and the position after it."""
        settings = self.settings
        progress = replace(progress, tokens=progress.tokens + update.num_labels, elapsed=self._elapsed())
        every = settings.validate_every, settings.save_every, settings.log_every
        to_validate, *is_saved_or_logged = (is_due(each, progress, settings) for each in every)
        to_read = to_validate or any(is_saved_or_logged) or reads_at_once(self._device)
        if to_read:
            self._device.synchronize()  # so that the time includes the work of a GPU
        progress = replace(progress, seconds=progress.seconds + time.perf_counter() - self._began)
        self._unread.append((progress, update))

        self.signal = self._stop.number()
        if to_read or self.signal:
            progress = self._read(progress)
        return replace(progress, validation_due=to_validate)

    def _elapsed(self) -> float:
        """The seconds of training so far."""
        return self._agreed(time.perf_counter() - self._started)

    def _agreed(self, seconds: float) -> float:
        """The same on every rank if there is training.max_minutes, so that all ranks have one rate and end together."""
        return self.ranks.max(seconds) if self.settings.max_minutes else seconds

    def _read(self, progress: Progress) -> Progress:
        """Log the updates since the last call, and count the skipped ones and the micro-batches that were split."""
        limit = MOST_IN_A_ROW_FP16 if self._device.dtype == torch.float16 else MOST_IN_A_ROW
        for then, update in self._unread:
            progress = count_update(progress, update, limit, self._lines_of, self.ranks)
            self._log.update(replace(then, skipped=progress.skipped, split=progress.split), update)
        self._unread.clear()
        return progress

    def after_validation(self, progress: Progress, scores: ValidationScores) -> Progress:
        """Rank this validation among those before, keep its scores for `average`, and log it."""
        longest = max(progress.longest_validation, self._agreed(scores.seconds))
        progress = replace(progress, elapsed=self._elapsed(), longest_validation=longest)
        progress = compare_with_best(progress, scores.goodness(self.settings.metric), self.settings)
        progress = replace(progress, validated={"step": progress.step, **asdict(scores)})
        self._log.validation(progress, scores)
        return progress

    def save(self, progress: Progress) -> None:
        """Save a checkpoint. Every rank must call this. Raises UserError or OSError on every rank if it fails."""
        tensors = Tensors.of(self.learner)
        with self.ranks.together():
            if self.ranks.is_first:
                save_checkpoint(self._run_dir, tensors, progress, self._digest)
                if progress.best_steps[:1] == [progress.step]:
                    point_best_at(self._run_dir, progress.step)
                prune(self._run_dir, progress, self.settings)
        self._saved = progress

    def end(self, progress: Progress) -> Progress:
        """Log and save everything that is not yet saved. Returns the saved progress."""
        progress = self._read(progress)
        self._log.end(progress)
        if progress != self._saved:
            self.save(progress)
        return progress


def reads_at_once(device: Device) -> bool:
    """Whether the host reads the numbers of each update at once: a GPU's queue would become empty meanwhile."""
    return device.torch_device.type != "cuda"
