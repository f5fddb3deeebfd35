"""What does not fit into memory is split, and the update is that of a machine with room."""

import pytest
import torch
from helpers.tiny import new_learner

from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.loader import Loader, Position
from transformer_mt.errors import RankError
from transformer_mt.settings.reading import load_config
from transformer_mt.training.averaging import MovingAverage
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.update import Learner, one_update

LACKS_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 800 bytes."),
    MemoryError(),
]


@pytest.fixture
def config(experiment):
    return load_config(experiment, ["model.dropout=0.0"])


def update_with_room_for(pairs, error, experiment, config, layout="padded"):
    """The update and the weights after it, where the backward pass of more pairs than these breaks off in the middle.

    The gradient itself moves the weights, for Adam would hide its scale.
    """
    loader = Loader(EncodedCorpus.load(experiment.parent / "data" / "train"), 700, 0, 2, layout)
    update, _ = next(loader.updates(Position()))
    learner = new_learner(config)
    learner = Learner(
        learner.loss,
        torch.optim.SGD(learner.model.parameters(), lr=1.0, fused=True),
        MovingAverage(learner.model, 0),
    )
    size = 0

    def note_size(module, arguments):
        nonlocal size
        size = len(arguments[0].pairs_B)

    def break_off(gradient):
        if size > pairs:
            raise error

    learner.loss.register_forward_pre_hook(note_size)
    learner.model.get_parameter("encoder.1.around_feed_forward.norm.weight").register_hook(break_off)
    batches = [loader.batch(part, 1, number) for number, part in enumerate(update)]
    done = one_update(learner, batches, 1.0, 1, config.training, Ranks())
    return done, {name: weight.detach() for name, weight in learner.model.named_parameters()}


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("error", LACKS_OF_MEMORY, ids=["cuda", "cpu", "python"])
def test_the_update_in_parts_is_the_update_of_the_whole(error, layout, experiment, config):
    whole, expected = update_with_room_for(1000, error, experiment, config, layout)
    split, found = update_with_room_for(4, error, experiment, config, layout)
    assert whole.splits == 0
    assert split.splits >= 3
    assert split.num_labels == whole.num_labels
    for name in ("smoothed", "nll", "gradient_norm"):
        torch.testing.assert_close(getattr(split, name), getattr(whole, name), rtol=1e-5, atol=0)
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-5)


def test_a_single_pair_that_does_not_fit_ends_with_the_keys_to_lower(experiment, config):
    with pytest.raises(RankError, match=r"out of memory with a single pair, of .*corpus\.max_length"):
        update_with_room_for(0, LACKS_OF_MEMORY[0], experiment, config)


def test_another_error_is_no_lack_of_memory(experiment, config):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        update_with_room_for(4, RuntimeError("mat1 and mat2 shapes cannot be multiplied"), experiment, config)
