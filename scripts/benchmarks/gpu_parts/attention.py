"""A measurement of the part profile: the kernels of packed attention, side by side on a batch of training."""

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import Tensor

from benchmarks.gpu_parts import own_process
from benchmarks.gpu_parts.settings import Figures, Settings
from benchmarks.training_text import random_rows
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.batches.packing import PackedBatch
from transformer_mt.kernels import packed_attention
from transformer_mt.kernels.device import Device, choose_device
from transformer_mt.kernels.packed_attention import Segments, are_short, variable_length_attention
from transformer_mt.preparing.shards import write_encoded

REPEATS, REPLAYS = 30, 5
PAIRS = 20_000
PAIRS_OF_TRIAL = 2000


def measure(_: str, settings: Settings) -> Figures:
    """Milliseconds of each kernel, forward, and forward and backward: in encoder and decoder, and across."""
    config, vocab_size = settings.shape_or("base32k")
    device = choose_device(settings.device, settings.training_precision, settings.threads)
    batch = packed_batch(settings, vocab_size, device)
    heads, width = config.num_heads, config.d_model // config.num_heads
    figures: Figures = {"heads": heads, "width": width, "positions": batch.num_positions, "repeats": REPEATS}
    for name, segments in kinds_of(batch):
        rows = [int(offsets[-1]) for offsets in (segments.query_offsets, segments.key_offsets)]
        inputs = [
            torch.randn(count, heads, width, dtype=device.dtype, device=device.torch_device, requires_grad=True)
            for count in (rows[0], rows[1], rows[1])
        ]
        figures[name] = {kernel: times(inputs, segments, device) for kernel in kernels(segments, inputs[0])}
    return figures


def packed_batch(settings: Settings, vocab_size: int, device: Device) -> PackedBatch:
    """The first batch of an epoch of random words."""
    rows = islice(random_rows(vocab_size), PAIRS_OF_TRIAL if settings.is_trial else PAIRS)
    write_encoded(settings.work / "attention", rows, vocab_size, vocab_size)
    corpus = EncodedCorpus.load(settings.work / "attention")
    loader = Loader(corpus, settings.tokens_per_batch, 0, 1, "packed")
    pairs, _ = next(loader.updates(Position()))
    batch = loader.batch(pairs[0], 1, 0)
    assert isinstance(batch, PackedBatch), "the loader was asked for packed batches"
    return batch.to(device.torch_device)


def kinds_of(batch: PackedBatch) -> Iterator[tuple[str, Segments]]:
    """Who sees whom in each of a Transformer's attentions."""
    source, target, longest = batch.source_offsets, batch.target_offsets, batch.shape.max_length
    yield "encoder", Segments(source, source, longest, longest, causal=False)
    yield "decoder", Segments(target, target, longest, longest, causal=True)
    yield "across", Segments(target, source, longest, longest, causal=False)


def kernels(segments: Segments, query_NHK: Tensor) -> Iterator[str]:
    """Set which kernel computes, one after the other, and name it. On a CPU there is only the plain formula."""
    if not query_NHK.is_cuda:
        yield "plain"
        return
    short = packed_attention.SHORT
    try:
        if are_short(segments, query_NHK):
            yield "ours"
        packed_attention.SHORT = 0
        yield "FlashAttention"
    finally:
        packed_attention.SHORT = short


def times(inputs: list[Tensor], segments: Segments, device: Device) -> Figures:
    """Medians, after a first time in which kernels are compiled."""

    def forward() -> Tensor:
        return variable_length_attention(*inputs, segments)

    def both() -> None:
        mixed_NHK = forward()
        torch.autograd.grad(mixed_NHK, inputs, mixed_NHK.detach())

    milliseconds = milliseconds_on_gpu if device.torch_device.type == "cuda" else milliseconds_on_cpu
    return {"forward": milliseconds(forward), "forward and backward": milliseconds(both)}


def milliseconds_on_cpu(compute: Callable[[], object]) -> float:
    """The median time of a call."""
    compute()
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        compute()
        found.append(1000 * (time.perf_counter() - began))
    return statistics.median(found)


def milliseconds_on_gpu(compute: Callable[[], object]) -> float:
    """The median time of a call in a CUDA graph of many: Python takes longer to start these kernels than they take."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # as PyTorch's documentation of graphs asks for, before a capture
        for _ in range(3):
            compute()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            compute()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    for _ in range(1 + REPLAYS):  # the first one also moves the graph to the GPU
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / REPEATS)
    return statistics.median(found[1:])


if __name__ == "__main__":
    own_process.answer(measure)
