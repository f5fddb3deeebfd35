"""On a GPU a validation takes seconds: nothing is compiled or planned for each of its hundreds of shapes."""

from contextlib import nullcontext

import pytest
import torch
from helpers.on_gpu import num_compiled
from helpers.tiny import train_tiny
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_mt import train

pytestmark = pytest.mark.cuda

PACKED = ("training.device=cuda", "training.layout=packed", "training.precision=bf16", "model.num_heads=1")
PADDED = ("training.device=cuda", "training.layout=padded", "training.precision=bf16")


class Names(TorchDispatchMode):
    """Notes the names of the functions of PyTorch that are called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def validations(monkeypatch):
    """A list of what each validation has compiled, and its seconds; the third also notes what it calls."""
    done, noting, real = [], Names(), train.validate

    def validate(*arguments):
        before = num_compiled()
        with noting if len(done) == 2 else nullcontext():
            scores = real(*arguments)
        done.append((num_compiled() - before, scores.seconds))
        return scores

    monkeypatch.setattr(train, "validate", validate)
    return done, noting.names


@pytest.mark.thorough
@pytest.mark.parametrize("own", [PACKED, PADDED], ids=["packed", "padded"])
def test_validations_after_the_first_compile_nothing_and_plan_no_attention(experiment, tmp_path, own, validations):
    """cuDNN's attention would make a plan for each shape."""
    torch.compiler.reset()
    done, called = validations
    train_tiny(experiment, tmp_path, *own, "training.validate_every=4", "training.max_steps=12")
    assert len(done) == 3
    assert [compiled for compiled, _ in done[1:]] == [0, 0]
    assert any("attention" in name for name in called), called
    assert not any("cudnn_attention" in name for name in called), called
    # The first loads kernels too; a later one may write longer translations, and is given more than its time.
    assert done[1][1] < 2 * done[0][1] + 1
