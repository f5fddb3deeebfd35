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
from transformer_mt.training.learning import Learner
from transformer_mt.training.progress import Progress


class Saver:
    """Saves one checkpoint at a time; on a GPU, a thread writes copies of the tensors while training goes on.

    Every rank has to call its methods, and gets their errors. At its end, also by an error, it waits for the checkpoint
    that is being written.
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
    ) -> None:
        self._run_dir, self._digest, self._settings, self._ranks = run_dir, tokenizer_digest, settings, ranks
        self._learner, self.saved = learner, progress
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._written: Future[None] | None = None
        self._saving = progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        # Only where an error ended the loop: else nothing is left to settle.
        if self._written and (error := self._written.exception()):
            print(f"warning: {error}", file=sys.stderr)

    def save(self, progress: Progress, at_once: bool = False) -> None:
        """Begin to save a checkpoint; the one before has to be settled. It is written at the return if `at_once`.

        Raises CheckpointError if it cannot be written then.
        """
        beside = writes_beside(self._learner.device) and not at_once
        tensors = Tensors.of(self._learner, self._ranks, copied=beside)
        write = partial(save, self._run_dir, tensors, progress, self._digest, self._settings)
        self._saving = progress
        if not beside:
            self._check(write)
        else:
            self._written = self._thread.submit(write if self._ranks.is_first else _do_nothing)

    def settle(self, wait: bool) -> None:
        """Learn what became of the checkpoint that is being saved, if it is written or if told to wait for it.

        Raises CheckpointError if it could not be written.
        """
        written = self._written
        if written is not None and (wait or self._ranks.max(int(self._ranks.is_first and written.done()))):
            self._written = None
            self._check(written.result)

    def _check(self, write: Callable[[], None]) -> None:
        if failure := self._ranks.broadcast(_failure(write) if self._ranks.is_first else ""):
            raise CheckpointError(failure)
        self.saved = self._saving


def writes_beside(device: Device) -> bool:
    """Whether a thread writes checkpoints. On the CPU it would take cores and memory away from training."""
    return device.torch_device.type == "cuda"


def _do_nothing() -> None:
    pass


def _failure(write: Callable[[], None]) -> str:
    """Why the checkpoint could not be saved; empty if it was."""
    try:
        write()
        return ""
    except (CheckpointError, OSError) as error:
        return str(error)
