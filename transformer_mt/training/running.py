"""What happens around the updates of a run: signals, the log, checkpoints."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from transformer_mt.data.batching import Batch, Pairs
from transformer_mt.data.loader import Loader, Position, split_evenly
from transformer_mt.data.packing import PackedBatch
from transformer_mt.device import Device
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.interrupt import StopSignal
from transformer_mt.training.learning import Learner, Update
from transformer_mt.training.log import RunLog
from transformer_mt.training.progress import Progress, compare_with_best, is_due, with_counts
from transformer_mt.training.saving import Saver
from transformer_mt.training.skipped_updates import MOST_IN_A_ROW, SkippedUpdates

if TYPE_CHECKING:
    from transformer_mt.training.validation import ValidationScores


class Run:
    """The course of a run from `progress` on, as a context: at its end, nothing is left to be written.

    `lines_of` says where pairs stand in the text, and `tokenizer_digest` which tokenizer has made their ids.
    """

    def __init__(
        self,
        run_dir: Path,
        learner: Learner,
        tokenizer_digest: str,
        settings: TrainingConfig,
        progress: Progress,
        ranks: Ranks,
        lines_of: Callable[[Pairs], str],
    ) -> None:
        self._settings, self._ranks, device = settings, ranks, learner.device
        self._stop = StopSignal(ranks)
        self._saver = Saver(run_dir, learner, tokenizer_digest, settings, progress, ranks)
        self._log = RunLog(run_dir, settings, progress, ranks, device.torch_device)
        self._device, self._unread = device, list[tuple[Progress, Update]]()
        self._skipped = SkippedUpdates(MOST_IN_A_ROW, lines_of, ranks)
        self._began = 0.0  # when the time of this update began
        self.signal = 0

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            for each in (self._stop, self._saver, self._log):
                entered.enter_context(each)
            self._entered = entered.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def batches(self, loader: Loader, progress: Progress) -> Iterator[tuple[list[Batch | PackedBatch], Position]]:
        """This rank's micro-batches of each update, and the position after it; without end.

        If a signal comes while the order of an epoch is made, that is the end, and `signal` is its number.
        """
        updates = loader.updates(progress.position, self._stop.unless_it_comes)
        for step, (pairs, position) in enumerate(updates, start=progress.step + 1):
            self._began = time.perf_counter()
            numbered = self._ranks.share(list(enumerate(split_evenly(pairs, self._ranks.size))))
            yield [loader.batch(part, step, number) for number, part in numbered], position
        self.signal = self._stop.number()

    def after_update(self, progress: Progress, update: Update) -> Progress:
        """Count what was done, and log it; `progress` has the step and the position after the update."""
        settings, step = self._settings, update.step
        to_validate = is_due(settings.validate_every, step, settings)
        is_needed = to_validate or is_due(settings.save_every, step, settings)
        to_read = is_needed or is_due(settings.log_every, step, settings) or reads_at_once(self._device)
        if to_read:
            self._device.synchronize()  # the seconds of a GPU are thus counted here
        seconds = progress.seconds + time.perf_counter() - self._began
        progress = replace(progress, tokens=progress.tokens + update.num_labels, seconds=seconds)
        self._unread.append((progress, update))

        self.signal = self._stop.number()
        is_needed = is_needed or self.signal > 0
        if to_read or is_needed:
            progress = self._read(progress)
        self._saver.settle(wait=is_needed)
        if to_validate and self.signal:  # a signal may leave less time than validation takes
            self._saver.save(progress, at_once=True)
        return progress

    def _read(self, progress: Progress) -> Progress:
        """Log the updates since the last time, and count the skipped ones and the micro-batches that were split."""
        for then, update in self._unread:
            progress = self._skipped.count(progress, update)
            self._log.update(with_counts(then, progress), update)
        self._unread.clear()
        return progress

    def after_validation(self, progress: Progress, scores: "ValidationScores") -> Progress:
        """Rank this validation among those before, and log it."""
        progress = compare_with_best(progress, scores.goodness(self._settings.metric), self._settings)
        self._log.validation(progress, scores)
        return progress

    def save(self, progress: Progress) -> None:
        """Begin to save a checkpoint."""
        self._saver.save(progress)

    def end(self, progress: Progress) -> Progress:
        """Read and save what is not yet, and wait until it is written. Returns the progress that was saved."""
        progress = self._read(progress)
        self._saver.settle(wait=True)
        if progress != self._saver.saved:
            self._saver.save(progress, at_once=True)
        return progress


def reads_at_once(device: Device) -> bool:
    """Whether the numbers of each update are read when it is made.

    A GPU computes what the host has queued. If the host waited for each update's numbers, the queue would run empty.
    """
    return device.torch_device.type != "cuda"
