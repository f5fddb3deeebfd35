"""Splits micro-batches that do not fit into memory, so that the update is made all the same."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from transformer_mt.base.errors import RankError
from transformer_mt.batches.batching import Batch
from transformer_mt.batches.packing import PackedBatch
from transformer_mt.kernels.device import Device
from transformer_mt.kernels.matmul import ONEDNN_REFUSES, do_without_onednn
from transformer_mt.training.scale.distributed import is_sharded

OUT_OF_MEMORY_SHARDED = (
    "out of memory, and with training.sharding=full no rank can split its micro-batch by itself: lower "
    "training.tokens_per_batch, in a new run_dir; training.tokens_per_update keeps the update as it is"
)

ALIKE = 0.9  # a micro-batch of this share of one that failed is held to be as large: a split costs less than a failure

# What errors say that have no type of their own: of PyTorch's CPU, C++, CUDA and its AcceleratorError, Triton and NCCL;
# of cuBLAS and cuDNN. Triton's "out of resource" is no lack of memory: a kernel wants too much of a core for itself.
MESSAGES = (
    *("can't allocate memory", "bad_alloc", ONEDNN_REFUSES, "out of memory", "Failed to CUDA malloc"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "DEVICE_ALLOCATION_FAILED", "HOST_ALLOCATION_FAILED"),
)

MicroBatch = Batch | PackedBatch
T = TypeVar("T")


class Size(NamedTuple):
    """What the memory of a micro-batch grows with."""

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
    """Which sizes did not fit into this rank's memory since the run was started: what is as large is split untried."""

    def __init__(self) -> None:
        self._too_large: list[Size] = []

    def lacks(self, batch: MicroBatch) -> None:
        """Remember that this micro-batch did not fit."""
        self._too_large.append(Size.of(batch))

    def parts(self, batches: Sequence[MicroBatch]) -> list[MicroBatch]:
        """The same pairs in the same order, in micro-batches that may fit or have a single pair."""
        parts: list[MicroBatch] = []
        for batch in batches:
            is_split = len(batch.pairs_B) > 1 and self._is_too_large(Size.of(batch))
            parts += self.parts(batch.halves()) if is_split else [batch]
        return parts

    def fit(
        self, batches: Sequence[MicroBatch], work: Callable[[Iterable[MicroBatch]], T], loss: nn.Module, device: Device
    ) -> T:
        """What `work` makes of these micro-batches, each split in two as long as it does not fit into memory.

        After a split all is done anew, because a backward pass that broke off has left a part of its gradient. Raises
        RankError for a single pair that does not fit, and for a sharded loss, where the ranks have to split together.
        """
        has_failed = False
        while True:
            at_work: list[MicroBatch] = []  # the one that is being computed; none when all are done
            try:
                made = work(_told(self.parts(batches), at_work))
            except (RuntimeError, MemoryError) as error:  # OutOfMemoryError is a RuntimeError
                if not at_work or not is_out_of_memory(error):
                    raise
                if ONEDNN_REFUSES in str(error):
                    do_without_onednn()
            else:
                if has_failed:
                    device.give_back()
                return made
            # Here the error is gone, and with it all tensors that it held.
            self._learn_from(at_work[0], loss)
            loss.zero_grad(set_to_none=True)
            device.give_back()
            has_failed = True

    def _learn_from(self, batch: MicroBatch, loss: nn.Module) -> None:
        """Remember a micro-batch that did not fit. Raises RankError if it cannot be split."""
        if is_sharded(loss):
            raise RankError(OUT_OF_MEMORY_SHARDED)
        if len(batch.pairs_B) < 2:
            raise RankError(_a_single_pair(batch))
        self.lacks(batch)

    def _is_too_large(self, size: Size) -> bool:
        return any(
            size.positions >= ALIKE * failed.positions and size.scores >= ALIKE * failed.scores
            for failed in self._too_large
        )


def _told(batches: Sequence[MicroBatch], at_work: list[MicroBatch]) -> Iterator[MicroBatch]:
    """The micro-batches; `at_work` holds the one that was taken last, until another is asked for."""
    for batch in batches:
        at_work[:] = [batch]
        yield batch
    at_work.clear()


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether the error says that a device or the host has no more memory.

    Many have no type of their own: only their message tells them apart.
    """
    is_of_type = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return is_of_type or any(message in str(error) for message in MESSAGES)


def _a_single_pair(batch: MicroBatch) -> str:
    return (
        f"out of memory with a single pair, of {batch.num_labels} target pieces: "
        "lower corpus.max_length (and prepare anew), model.d_model, model.ffn_dim or the number of layers, "
        "or take training.precision=bf16"
    )
