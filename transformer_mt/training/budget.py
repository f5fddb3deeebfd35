"""Finds the largest micro-batch that fits into memory."""

from dataclasses import replace

import torch

from transformer_mt.data.loader import Loader
from transformer_mt.device import free_memory_on, peak_memory_on
from transformer_mt.errors import RankError, TrainingError
from transformer_mt.training.batch_loss import BatchLoss
from transformer_mt.training.distributed import Ranks, is_sharded, shard_of
from transformer_mt.training.out_of_memory import OUT_OF_MEMORY_SHARDED, is_out_of_memory

SAMPLE = 1000  # micro-batches, shuffled, among which the largest is looked for
SHARE = 0.8  # of the memory that there is: the rest is for the fragments between tensors, and for what others do


def largest_tokens_per_batch(loss: BatchLoss, loader: Loader, ranks: Ranks) -> int:
    """The largest budget of a micro-batch that fits on every rank, at most an update's.

    Doubles the budget as long as the next doubling will fit, and goes on in a straight line from there. Raises
    TrainingError if the longest pair does not fit by itself.
    """
    # Adam keeps two numbers a weight, from the first update on.
    states = 2 * sum(shard_of(weight).numel() * weight.element_size() for weight in loss.parameters())
    # Ranks agree after each try, for each of them has to make as many.
    room = -ranks.max(-int(SHARE * _room(loss.device.torch_device, ranks) - states))
    smallest = budget = loader.smallest_budget
    before = peak = ranks.max(_peak(loss, replace(loader, tokens_per_batch=budget)))
    if peak > room:
        raise TrainingError(
            f"the longest pair, of {smallest} pieces, does not fit into memory: lower corpus.max_length (and prepare "
            "anew), model.d_model, model.ffn_dim or the number of layers"
        )
    while budget < loader.tokens_per_update and peak + 2 * (peak - before) <= room:
        budget *= 2
        before, peak = peak, ranks.max(_peak(loss, replace(loader, tokens_per_batch=budget)))
    if peak > room:
        budget //= 2
    elif peak > before:
        budget += (room - peak) * (budget // 2) // (peak - before)
    return max(smallest, min(budget, loader.tokens_per_update))


def _peak(loss: BatchLoss, loader: Loader) -> int:
    """The most bytes held by the micro-batch with the most attention scores, and by the one with the most pairs."""
    device = loss.device.torch_device
    batches = loader.order(0)[:SAMPLE]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    try:
        for pairs in (max(batches, key=loader.attention_scores), max(batches, key=len)):
            sums = loss(loader.batch(pairs, 0, 0), compiled=False)  # each try has a shape of its own
            sums.smoothed.backward()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if is_sharded(loss):
            raise RankError(OUT_OF_MEMORY_SHARDED) from None
        return 2**62
    finally:
        loss.zero_grad(set_to_none=True)
    # On the CPU it is the most of all tries so far: a larger batch than all before raises it.
    return peak_memory_on(device)


def _room(device: torch.device, ranks: Ranks) -> int:
    """The bytes that this rank can get: of its GPU, or its share of the host's memory."""
    return free_memory_on(device) if device.type == "cuda" else free_memory_on(device) // ranks.local_size
