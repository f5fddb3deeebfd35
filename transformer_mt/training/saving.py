"""Saves the checkpoints of a run, on a GPU beside training: it goes on while the disk is written."""

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from transformer_mt.device import Device
from transformer_mt.errors import CheckpointError
from transformer_mt.settings.experiment import TrainingConfig
from transformer_mt.training.checkpoint import Tensors, save
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.learning import Learner
from transformer_mt.training.progress import Progress


@dataclass(frozen=True)
class _Saving:
    """A checkpoint that is being saved."""

    written: Future[None] | None
    """None on ranks that do not write."""
    progress: Progress
    may_fail: bool
    former: Progress


class Saver:
    """Saves one checkpoint at a time; if `beside`, a thread writes copies of the tensors while training goes on.

    At its end, also by an error, it waits for the checkpoint that is being written.
    """

    saved: Progress
    """What the newest checkpoint holds; before the first, what the run begins with."""

    def __init__(
        self,
        run_dir: Path,
        learner: Learner,
        tokenizer_digest: str,
        settings: TrainingConfig,
        progress: Progress,
        ranks: Ranks,
        beside: bool,
    ) -> None:
        self._run_dir, self._digest, self._settings, self._ranks = run_dir, tokenizer_digest, settings, ranks
        self._learner, self._beside, self.saved = learner, beside, progress
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._saving: _Saving | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        # Only where an error ended the loop: else nothing is left to settle.
        if self._saving and self._saving.written and (error := self._saving.written.exception()):
            print(f"warning: {error}", file=sys.stderr)

    def save(self, progress: Progress, may_fail: bool, former: Progress) -> Progress:
        """Begin to save a checkpoint; the one before has to be settled, and every rank has to call this.

        One that may not fail is written at the return. Returns the progress as `settle` does. `former` is the
        progress before this update's validation.
        """
        beside = self._beside and may_fail
        tensors = Tensors.of(self._learner, self._ranks, copied=beside)
        written: Future[None] | None = None
        if self._ranks.is_first:
            write = partial(save, self._run_dir, tensors, progress, self._digest, self._settings)
            written = self._thread.submit(write) if beside else _written_now(write)
        self._saving = _Saving(written, progress, may_fail, former)
        return progress if beside else self.settle(progress, wait=True)

    def settle(self, progress: Progress, wait: bool) -> Progress:
        """Learn what became of the checkpoint that is being saved, if it is written or if told to wait for it.

        Every rank has to call this. Returns the progress; if the checkpoint could not be written, the best ones are
        those of before. Raises CheckpointError on every rank then, unless it may fail and training is to go on.
        """
        saving = self._saving
        if saving is None or not (wait or self._ranks.max(int(saving.written is not None and saving.written.done()))):
            return progress
        self._saving = None
        failure = self._ranks.broadcast(_failure(saving))
        if not failure:
            self.saved = saving.progress
            return progress
        if not (saving.may_fail and self._settings.on_failed_save == "go_on"):
            raise CheckpointError(failure)
        if self._ranks.is_first:
            print(f"warning: {failure}", file=sys.stderr)
        former = saving.former
        return replace(progress, best=former.best, validations_since_best=former.validations_since_best)


def writes_beside(device: Device) -> bool:
    """Whether a thread writes checkpoints. On the CPU it would take cores and memory away from training."""
    return device.torch_device.type == "cuda"


def _written_now(write: Callable[[], None]) -> Future[None]:
    """Write now; the result is in the form that a thread gives."""
    written: Future[None] = Future()
    try:
        write()
        written.set_result(None)
    except (CheckpointError, OSError) as error:
        written.set_exception(error)
    return written


def _failure(saving: _Saving) -> str:
    """Why the checkpoint could not be saved, once that is known; empty if it was saved, or is not saved here."""
    try:
        if saving.written is not None:
            saving.written.result()
        return ""
    except (CheckpointError, OSError) as error:
        return str(error)
