"""What a search costs on a GPU: the host waits for it once a step, for all that it looks at."""

import pytest
import torch
from helpers.plain_search import CAPS, VOCAB_SIZE, beam_search, greedy
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from transformer_mt.decoding import sampling, search
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.kernels.device import choose_device, on_device, on_host

READS = {
    getattr(torch.Tensor, name)
    for name in ("tolist", "item", "nonzero", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__")
}


class OnHost(torch.Tensor):
    """A tensor that the host may read. What is computed from it is one, too."""


class Reading(TorchFunctionMode):
    """Refuses to read a tensor that would lie on the GPU, and to mix it with others."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        places = {isinstance(value, OnHost) for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)}
        assert len(places) < 2, f"{function.__name__} of tensors in two places"
        assert function not in READS or places == {True}, f"{function.__name__} waits for a GPU"
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize(
    "find",
    [lambda *of: greedy(*of, CAPS, 0.6), lambda *of: beam_search(*of, 4, 0.6, CAPS)],
    ids=["greedy", "beam"],
)
def test_the_host_waits_once_a_step(find, tiny_model, sources, monkeypatch):
    model, source_BS, events = tiny_model(VOCAB_SIZE), sources(len(CAPS), 6, VOCAB_SIZE), []
    real_step = model.step

    def step(token_BW, state):
        assert not isinstance(token_BW, OnHost), "it would lie elsewhere than the model"
        events.append("step")
        return real_step(token_BW, state)

    def seen(*tensors):
        events.append("wait")
        return tuple(tensor.as_subclass(OnHost) for tensor in on_host(*tensors))

    monkeypatch.setattr(model, "step", step)
    for module in (sampling, search):
        monkeypatch.setattr(module, "on_host", seen)
    with Reading():
        find(model, source_BS)
    assert len(events) > 10
    assert events == ["step", "wait"] * (len(events) // 2)


def test_what_is_sent_and_fetched_stays_the_same():
    numbers = [3, 1, 2]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    there = on_device(numbers, device)
    here, other = on_host(there, there[1:])
    assert there.device.type == device.type
    assert (here.tolist(), other.tolist()) == (numbers, [1, 2])
    assert here.device.type == other.device.type == "cpu"


@pytest.mark.cuda
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_on_a_gpu_nothing_else_waits(width, tiny_model, sources, monkeypatch):
    """PyTorch refuses to wait but where it is allowed, also while steps are captured."""
    searched = TorchEngine(tiny_model(VOCAB_SIZE).float(), 64, choose_device("cuda", "fp32")).searched
    source_BS = sources(len(CAPS), 6, VOCAB_SIZE).cuda()

    def seen(*tensors):
        torch.cuda.set_sync_debug_mode("default")
        copies = on_host(*tensors)
        torch.cuda.set_sync_debug_mode("error")
        return copies

    for module in (sampling, search):
        monkeypatch.setattr(module, "on_host", seen)
    try:
        for _ in range(2):
            torch.cuda.set_sync_debug_mode("error")
            found = (
                greedy(searched, source_BS, CAPS) if width == 1 else beam_search(searched, source_BS, width, 0.6, CAPS)
            )
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(found) == len(CAPS)
    assert searched.graphs
