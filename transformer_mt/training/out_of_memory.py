"""Splits micro-batches that do not fit into memory, so that the update is made all the same."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from transformer_mt.data.batching import Batch
from transformer_mt.data.packing import PackedBatch
from transformer_mt.device import Device
from transformer_mt.errors import RankError
from transformer_mt.kernels.cpu import ONEDNN_REFUSES, do_without_onednn
from transformer_mt.training.distributed import is_sharded
from transformer_mt.training.loss import LossSums

OUT_OF_MEMORY_SHARDED = (
    "out of memory, and with training.sharding=full no rank can split its micro-batch by itself: lower "
    "training.tokens_per_batch, in a new run_dir; training.tokens_per_update keeps the update as it is"
)

MicroBatch = Batch | PackedBatch
Backward = Callable[[MicroBatch, int], LossSums]


def sum_over(
    batches: Sequence[MicroBatch], backward: Backward, module: nn.Module, device: Device
) -> tuple[LossSums, int]:
    """Call `backward` with each micro-batch and its number; the sums of its losses, and how often one was split.

    A micro-batch that does not fit into memory is split in two. Then all are computed again from the first, because
    a backward pass that broke off has left a part of its gradient. Raises RankError for a single pair that does not
    fit, and for sharded weights, where the ranks have to split together.
    """
    waiting, splits = list(batches), 0
    while True:
        sums, failed = _try(waiting, backward, device)
        if failed is None:
            if splits:
                device.give_back()
            return sums, splits
        if is_sharded(module):
            raise RankError(OUT_OF_MEMORY_SHARDED)
        if len(waiting[failed].pairs_B) < 2:
            raise RankError(_a_single_pair(waiting[failed]))
        module.zero_grad(set_to_none=True)
        device.give_back()
        waiting[failed : failed + 1] = waiting[failed].halves()
        splits += 1


def _try(batches: Sequence[MicroBatch], backward: Backward, device: Device) -> tuple[LossSums, int | None]:
    """The sums of the losses; and which micro-batch did not fit, or None."""
    smoothed, nll = (torch.zeros((), device=device.torch_device) for _ in range(2))
    for number, batch in enumerate(batches):
        try:
            sums = backward(batch, number)
        except (RuntimeError, MemoryError) as error:  # OutOfMemoryError is a RuntimeError
            if not is_out_of_memory(error):
                raise
            if ONEDNN_REFUSES in str(error):
                do_without_onednn()
            return LossSums(smoothed, nll), number
        smoothed += sums.smoothed.detach()
        nll += sums.nll
    return LossSums(smoothed, nll), None


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether the error says that a device or the host has no more memory.

    On the CPU, PyTorch raises a plain RuntimeError, which only its message tells apart.
    """
    messages = ("can't allocate memory", "bad_alloc", ONEDNN_REFUSES)
    is_of_type = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return is_of_type or any(message in str(error) for message in messages)


def _a_single_pair(batch: MicroBatch) -> str:
    return (
        f"out of memory with a single pair, of {batch.num_labels} target pieces: "
        "lower corpus.max_length (and prepare anew), model.d_model, model.ffn_dim or the number of layers, "
        "or take training.precision=bf16"
    )
