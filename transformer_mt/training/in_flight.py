"""Brings the numbers of updates from the GPU to the host without letting the GPU stand still."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transformer_mt.device import Device, end_of_queue
from transformer_mt.training.progress import Progress
from transformer_mt.training.update import Numbers

LEAD = 2  # updates that a GPU still has to do while the host reads the numbers of those before


@dataclass(frozen=True)
class Update:
    """An update that was made, and what the host knows of it at once; all over all ranks, but for the pairs."""

    numbers: Numbers
    step: int
    """From 1."""
    learning_rate: float
    num_labels: int
    """Real target tokens."""
    num_positions: int
    """Target positions, padding included."""
    num_batches: int
    """Micro-batches, before any was split."""
    pairs: Tensor
    """int64, on the CPU: the numbers of the corpus's pairs that this rank saw."""

    @property
    def splits(self) -> int:
        """How often a micro-batch was split in two because it, or one as large, did not fit into memory."""
        return int(self.numbers.num_batches) - self.num_batches


@dataclass(frozen=True)
class _Sent:
    """An update whose numbers are being copied to the host."""

    update: Update
    copied: torch.cuda.Event | None
    """Happens when the numbers are there; None where they were on the host from the beginning."""


class InFlight:
    """The last updates, whose numbers may still have to be computed or copied.

    A GPU computes what the host has queued. If the host waited for the newest number, the queue would run empty. So
    it is always `lead` updates ahead, and reads only numbers of updates before those. With a lead of 0, as on the
    CPU, each update is read at once.
    """

    def __init__(self, lead: int) -> None:
        self._lead = lead
        self._sent: list[_Sent] = []
        self._progress: list[Progress] = []
        self._num_waited = 0

    def send(self, update: Update, wait_for_all: bool) -> None:
        """Start to copy the numbers of an update; wait for those of the update that is `lead` before, or for all."""
        self._sent.append(_start_copy(update))
        self._wait(self._num_ready(wait_for_all))

    def read(self, progress: Progress, all_of_them: bool) -> list[tuple[Progress, Update]]:
        """The updates that have arrived, in order, each with the progress after it.

        `progress` is that after the update sent last. All updates have arrived if `all_of_them` are waited for.
        """
        self._progress.append(progress)
        number = self._num_ready(all_of_them)
        self._wait(number)
        arrived = [(then, sent.update) for then, sent in zip(self._progress, self._sent, strict=True)][:number]
        del self._progress[:number], self._sent[:number]
        self._num_waited = 0
        return arrived

    def _wait(self, number: int) -> None:
        """Wait for the numbers of the first updates that have been sent and not been read."""
        for sent in self._sent[self._num_waited : number]:
            if sent.copied is not None:
                sent.copied.synchronize()
        self._num_waited = max(self._num_waited, number)

    def _num_ready(self, all_of_them: bool) -> int:
        return len(self._sent) if all_of_them else max(0, len(self._sent) - self._lead)


def lead_on(device: Device) -> int:
    """How many updates the host is to be ahead."""
    return LEAD if device.torch_device.type == "cuda" else 0


def _start_copy(update: Update) -> _Sent:
    if update.numbers.nll.device.type != "cuda":
        return _Sent(update, None)
    numbers = Numbers(*(number.to("cpu", non_blocking=True) for number in update.numbers))  # into pinned memory
    return _Sent(replace(update, numbers=numbers), end_of_queue(update.numbers.nll.device))
