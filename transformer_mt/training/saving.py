"""Saves the checkpoints of a run, on a GPU beside training: it goes on while the disk is written."""

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Self

from transformer_mt.device import Device
from transformer_mt.errors import CheckpointError
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.checkpoint import Tensors, save
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.progress import Progress
from transformer_mt.training.update import Learner


class Saver:
    """Saves one checkpoint at a time; if `beside`, a thread writes copies of the tensors while training goes on.

    At its end, also by an error, it waits for the checkpoint that is being written.
    """

    def __init__(self, run_dir: Path, tokenizer_digest: str, settings: TrainingConfig, ranks: Ranks, beside: bool):
        self._run_dir, self._digest, self._settings, self._ranks = run_dir, tokenizer_digest, settings, ranks
        self._beside = beside
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._saving: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        # Only where an error ended the loop: else nothing is left to settle.
        if self._saving and (error := self._saving.exception()):
            print(f"warning: {error}", file=sys.stderr)

    def save(self, learner: Learner, progress: Progress, beside: bool) -> None:
        """Begin to save a checkpoint; the one before has to be settled, and every rank has to call this.

        Unless it may be written `beside` training, it is written at the return.
        """
        beside = self._beside and beside
        tensors = Tensors.of(learner, self._ranks, copied=beside)
        self._saving = _written_now(lambda: None)  # on ranks that do not write
        if self._ranks.is_first:
            write = partial(save, self._run_dir, tensors, progress, self._digest, self._settings)
            self._saving = self._thread.submit(write) if beside else _written_now(write)
        if not beside:
            self.settle(wait=True)

    def settle(self, wait: bool) -> None:
        """Learn what became of the checkpoint that is being saved, if it is written or if told to wait for it.

        Every rank has to call this. Raises CheckpointError on every rank if the checkpoint could not be written.
        """
        saving = self._saving
        if saving is None or not (wait or self._ranks.max(int(self._ranks.is_first and saving.done()))):
            return
        self._saving = None
        if failure := self._ranks.broadcast(_failure(saving)):
            raise CheckpointError(failure)


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


def _failure(saving: Future[None]) -> str:
    """Why the checkpoint could not be saved, once that is known; empty if it was saved, or is not saved here."""
    try:
        saving.result()
        return ""
    except (CheckpointError, OSError) as error:
        return str(error)
