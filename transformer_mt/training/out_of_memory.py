"""Splits micro-batches that do not fit into memory, so that the same update is made from smaller ones."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import nn
from tqdm import tqdm

from transformer_mt.base.errors import RankError
from transformer_mt.batches.packing import MicroBatch, PackedBatch
from transformer_mt.kernels.device import ONEDNN_REFUSES, Device, do_without_refused_onednn
from transformer_mt.training.distributed import is_sharded

ALIKE = 0.9  # of the size of a micro-batch that failed: larger ones are split, as a split costs less than a failure
FIRST_WAIT = 100  # calls of `Room.fit`, each of which is an update, until sizes that did not fit are tried again

# Messages of errors without a type of their own: from PyTorch on CPUs, C++, CUDA (AcceleratorError), Triton and NCCL;
# from cuBLAS and cuDNN. Triton's "out of resource" is not about memory: a kernel needs too much of one core.
MESSAGES = (
    *("can't allocate memory", "bad_alloc", ONEDNN_REFUSES, "out of memory", "Failed to CUDA malloc"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "DEVICE_ALLOCATION_FAILED", "HOST_ALLOCATION_FAILED"),
)

T = TypeVar("T")


class Size(NamedTuple):
    """The sizes on which the memory of a micro-batch depends."""

    positions: int
    """Of both sides, padding included."""
    scores: int
    """Attention scores of a head, on the longer side; 0 if packed, where they are not in memory."""

    @classmethod
    def of(cls, batch: MicroBatch) -> "Size":
        if isinstance(batch, PackedBatch):
            return cls(batch.source_N.numel() + batch.labels_N.numel(), 0)
        pairs, longest = len(batch.pairs_B), max(batch.source_BS.shape[1], batch.labels_BT.shape[1])
        return cls(batch.source_BS.numel() + batch.labels_BT.numel(), pairs * longest**2)


class Room:
    """The sizes that did not fit into this rank's memory. Micro-batches as large are split untried.

    Another program may have held the memory for a moment. So all sizes are forgotten after a while, twice as long each
    time: if there is too little memory for good, failures become rare.
    """

    def __init__(self, release: Callable[[], bool] = lambda: False) -> None:
        """`release` frees memory that can be done without, and returns whether there was any; then nothing is split."""
        self.too_large, self._release = list[Size](), release
        self._wait = self._left = FIRST_WAIT

    def _forget_in_time(self, device: Device) -> None:
        """Called before each update: after enough of them, forget all sizes."""
        if not self.too_large:
            return
        self._left -= 1
        if self._left < 0:
            self.too_large.clear()
            self._wait = self._left = 2 * self._wait
            memory = f"the memory of {device.torch_device}"
            tqdm.write(f"trying again the sizes of micro-batches that did not fit into {memory}", file=sys.stderr)

    def parts(self, batches: Sequence[MicroBatch]) -> list[MicroBatch]:
        """The same pairs in the same order, in micro-batches that may fit or have a single pair."""
        parts: list[MicroBatch] = []
        for batch in batches:
            size = Size.of(batch)
            is_split = len(batch.pairs_B) > 1 and any(
                size.positions >= ALIKE * failed.positions and size.scores >= ALIKE * failed.scores
                for failed in self.too_large
            )
            parts += self.parts(batch.halves()) if is_split else [batch]
        return parts

    def fit(
        self, batches: Sequence[MicroBatch], work: Callable[[Iterable[MicroBatch]], T], loss: nn.Module, device: Device
    ) -> T:
        """The result of `work` on these micro-batches. Each is split in two until its parts fit into memory.

        After a split, all work is repeated, because a failed backward pass has left a part of its gradient. Raises
        RankError for a single pair that does not fit, and for a sharded loss, where all ranks would have to split.
        """
        has_failed = False
        self._forget_in_time(device)
        while True:
            current: list[MicroBatch] = []  # the one that is being computed; none when all are done
            try:
                made = work(_tracked(self.parts(batches), current))
            except (RuntimeError, MemoryError) as error:  # OutOfMemoryError is a RuntimeError
                if not current or not is_out_of_memory(error):
                    raise
                do_without_refused_onednn(error)
            else:
                if has_failed:
                    device.give_back()
                return made
            # Here Python has freed the error, and with it all tensors that it held.
            failed, has_failed = current[0], True
            if not self._release():
                _check_can_be_split(failed, loss)
                size = Size.of(failed)
                self.too_large.append(size)
                tqdm.write(  # on every rank, because each has its own memory
                    f"warning: a micro-batch of {size.positions} positions did not fit into the memory of "
                    f"{device.torch_device}: such sizes are split in two for a while, then tried again",
                    file=sys.stderr,
                )
            loss.zero_grad(set_to_none=True)
            device.give_back()


def _check_can_be_split(failed: MicroBatch, loss: nn.Module) -> None:
    if is_sharded(loss):
        raise RankError(
            "out of memory, and with training.sharding=full no rank can split its micro-batch by itself: set a "
            "lower training.tokens_per_batch in a new run_dir; with training.tokens_per_update, updates keep "
            "their size"
        )
    if len(failed.pairs_B) < 2:
        raise RankError(
            f"out of memory with a single pair, of {failed.num_labels} target pieces: "
            "lower corpus.max_length (and prepare again), model.d_model, model.ffn_dim or the number of "
            "layers, or set training.precision=bf16"
        )


def _tracked(batches: Sequence[MicroBatch], current: list[MicroBatch]) -> Iterator[MicroBatch]:
    """The micro-batches; `current` always holds the one that was taken last."""
    for batch in batches:
        current[:] = [batch]
        yield batch
    current.clear()


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether the error says, by its type or only by its message, that a device or the host has no more memory."""
    is_of_type = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return is_of_type or any(message in str(error) for message in MESSAGES)
