"""On a GPU, steps that are captured and replayed say what the frozen model says."""

import itertools
from functools import partial

import pytest
import torch
from helpers.on_gpu import BF16_ROUNDING, FP32_ROUNDING, poison
from helpers.stepping import WIDER_AND_NARROWER, logits_along

from transformer_mt.inference.cuda_graphs import CudaCapture, CudaGraphTransformer, with_cuda_graphs
from transformer_mt.inference.frozen import frozen
from transformer_mt.kernels.matmul import Matmul

pytestmark = pytest.mark.cuda

# Captured, a step has a few rows more: a matrix product of other sizes may sum in another order, and round otherwise.
# Roundings of some dozens of products, one after the other, add up.
TOLERANCES = {None: 1000 * FP32_ROUNDING, torch.bfloat16: 20 * BF16_ROUNDING, torch.float16: 20 * 2**-12}

each_type = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def two_forms(tiny_model, gpu):
    """A function that gives a model frozen, and the same with its steps captured."""

    def build(dtype=None, **settings):
        device = gpu.torch_device
        model = frozen(tiny_model(**settings).float().to(device), Matmul(dtype))
        return model, with_cuda_graphs(model, partial(CudaCapture, torch.cuda.Stream(device)))

    return build


def assert_steps_alike(ours, model, source_BS, widths, leaving=(), dtype=None):
    source_BS = source_BS.cuda()
    expected = logits_along(model, source_BS, widths, leaving)
    found = logits_along(ours, source_BS, widths, leaving)
    for step, (logits_BWV, expected_BWV) in enumerate(zip(found, expected, strict=True)):
        assert logits_BWV.shape == expected_BWV.shape and logits_BWV.dtype == expected_BWV.dtype
        difference = (logits_BWV.float() - expected_BWV.float()).norm()
        assert difference <= TOLERANCES[dtype] * expected_BWV.float().norm(), f"step {step}"


@each_type
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_steps_are_those_of_the_frozen_model(norm, dtype, two_forms, sources):
    """Of several batches, one after the other, in memory full of NaN; sizes that come again are replayed."""
    model, ours = two_forms(dtype, norm=norm)
    assert isinstance(ours, CudaGraphTransformer)
    for count, longest in [(4, 7), (4, 7), (9, 5), (1, 50), (6, 7), (9, 5), (4, 7)]:
        widths = [*WIDER_AND_NARROWER, *[5] * 30]
        poison(torch.device("cuda"), megabytes=64)
        assert_steps_alike(ours, model, sources(count, longest), widths, leaving=(2, 6, 9), dtype=dtype)


def test_also_while_memories_grow(two_forms, sources):
    """More sentences, longer sources and longer translations than ever before; and then the first ones again."""
    model, ours = two_forms(positions="sinusoidal", max_positions=1024)
    sizes = [(2, 7, 20), (9, 60, 40), (33, 130, 70), (5, 300, 200), (64, 20, 30), (2, 7, 20), (33, 130, 70)]
    for count, longest, steps in [size for size in sizes for _ in range(2)]:
        assert_steps_alike(ours, model, sources(count, longest), [2] * steps, leaving=(7,))


def test_also_with_more_sizes_than_graphs_are_kept_for(two_forms, sources):
    """Twice through more than 128 of them; what PyTorch reserves does not grow with each."""
    model, ours = two_forms(max_positions=1024)
    sizes = list(itertools.product((1, 2, 4, 8, 16, 32), range(1, 13), (5, 100, 300)))
    assert len(sizes) > 128
    reserved = []
    for _ in range(2):
        for count, width, longest in sizes:
            assert_steps_alike(ours, model, sources(count, longest), [width] * 3)
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[1] <= 1.5 * reserved[0] + 2**28


def test_a_lack_of_memory_while_it_grows_leaves_steps_that_are_right(two_forms, sources):
    model, ours = two_forms(max_positions=1024)
    for _ in range(2):
        assert_steps_alike(ours, model, sources(2, 7), [2] * 6)
    torch.cuda.synchronize()
    total, held = torch.cuda.get_device_properties(0).total_memory, torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction(held / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            logits_along(ours, sources(4096, 300).cuda(), [4] * 100)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert_steps_alike(ours, model, sources(2, 7), [2] * 6)
    assert_steps_alike(ours, model, sources(9, 70), [2] * 6)


def test_on_a_gpu_a_capture_finds_room_in_memory_that_is_kept_for_reuse():
    """Captures take memory of their own. What the run before them leaves is given back only if it is needed."""
    torch.cuda.empty_cache()
    size, total = 2**28, torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 1.5 * size) / total)
    try:
        result, again = CudaCapture(torch.cuda.Stream())(
            lambda: torch.ones(size, dtype=torch.uint8, device="cuda").amax()
        )
        assert result == again() == 1
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
