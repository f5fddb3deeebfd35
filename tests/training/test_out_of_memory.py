"""What does not fit into memory is split, and the update is that of a machine with room."""

from dataclasses import replace
from itertools import islice

import pytest
import torch
from helpers.messages import message
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import assert_same_weights, new_learner

from transformer_mt.base.errors import RankError
from transformer_mt.batches.batching import Batch
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.settings.reading import load_config
from transformer_mt.training import out_of_memory
from transformer_mt.training.learning import Learner, MovingAverage
from transformer_mt.training.loop import one_update
from transformer_mt.training.out_of_memory import Room, Size, is_out_of_memory

LACKS_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 800 bytes."),
    MemoryError(),
]
OTHER_LACKS_OF_MEMORY = [
    torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", 2),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError("NCCL Error 1: unhandled cuda error. Last error: Failed to CUDA malloc 1048576 bytes"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("could not create a primitive"),
]
OTHER_ERRORS = [
    RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
    RuntimeError("out of resource: shared memory, Required: 300000, Hardware limit: 232448"),
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
        learner.settings,
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
    done = one_update(learner, batches, 1.0, 1)
    return done, {name: weight.detach() for name, weight in learner.model.named_parameters()}


@pytest.mark.parametrize(
    ("error", "layout"),
    [
        *zip(LACKS_OF_MEMORY, ["packed", "padded", "packed"], strict=True),
        *thorough_rows(*zip(LACKS_OF_MEMORY, ["padded", "packed", "padded"], strict=True)),
    ],
)
def test_the_update_in_parts_is_the_update_of_the_whole(error, layout, experiment, config):
    whole, expected = update_with_room_for(1000, error, experiment, config, layout)
    split, found = update_with_room_for(4, error, experiment, config, layout)
    assert whole.splits == 0
    assert split.splits >= 3
    assert split.num_labels == whole.num_labels
    for name in ("smoothed", "nll", "gradient_norm"):
        torch.testing.assert_close(getattr(split.numbers, name), getattr(whole.numbers, name), rtol=1e-5, atol=0)
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-5)


def test_a_single_pair_that_does_not_fit_ends_with_the_keys_to_lower(experiment, config):
    with pytest.raises(RankError, match=message("single-pair-too-large")):
        update_with_room_for(0, LACKS_OF_MEMORY[0], experiment, config)


def test_another_error_is_no_lack_of_memory(experiment, config):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        update_with_room_for(4, OTHER_ERRORS[0], experiment, config)


@pytest.mark.parametrize("error", LACKS_OF_MEMORY + OTHER_LACKS_OF_MEMORY, ids=str)
def test_each_library_says_in_its_own_way_that_memory_is_out(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", OTHER_ERRORS, ids=str)
def test_what_only_sounds_alike_is_no_lack_of_memory(error):
    assert not is_out_of_memory(error)


def updates_with_room_for(positions, number, experiment, config, layout, forgets=False, positions_after=0):
    """How many micro-batches each of these updates tried in vain, and how many it split; and the weights at last.

    Target positions decide what fits; after the first failure, `positions_after` do if it is not 0.
    """
    loader = Loader(EncodedCorpus.load(experiment.parent / "data" / "train"), 700, 1, 2, layout)
    learner = new_learner(config)
    in_vain, failures, splits = 0, [], []

    def break_off(module, arguments):
        nonlocal in_vain, positions
        if arguments[0].num_positions > positions:
            in_vain += 1
            positions = positions_after or positions
            raise LACKS_OF_MEMORY[0]

    learner.loss.register_forward_pre_hook(break_off)
    for step, (update, _) in enumerate(islice(loader.updates(Position()), number), start=1):
        in_vain = 0
        learner = replace(learner, room=Room()) if forgets else learner
        batches = [loader.batch(part, step, index) for index, part in enumerate(update)]
        splits.append(one_update(learner, batches, 1e-3, step).splits)
        failures.append(in_vain)
    return failures, splits, {name: weight.detach() for name, weight in learner.model.named_parameters()}


def test_a_size_that_did_not_fit_is_not_tried_again(experiment, config):
    """All full batches of packed sentences are of one size."""
    failures, splits, _ = updates_with_room_for(600, 5, experiment, config, "packed")
    assert failures == [1, 0, 0, 0, 0]
    assert splits == [1] * 5


@pytest.mark.thorough
@pytest.mark.parametrize("layout", [*thorough("padded"), "packed"])
def test_what_is_split_untried_is_learnt_as_if_it_had_been_tried(layout, experiment):
    """Dropout included."""
    config = load_config(experiment, [])
    failures, splits, weights = updates_with_room_for(600, 4, experiment, config, layout)
    more_failures, same_splits, same_weights = updates_with_room_for(600, 4, experiment, config, layout, forgets=True)
    assert sum(failures) < sum(more_failures)
    assert splits == same_splits
    assert_same_weights(weights, same_weights)


def padded(num_pairs, source_length, target_length):
    source_BS, target_BT = (torch.full((num_pairs, length), 5) for length in (source_length, target_length))
    return Batch(source_BS, target_BT, target_BT, torch.arange(num_pairs), target_BT.numel())


def test_a_batch_of_long_sentences_that_failed_says_nothing_about_as_many_positions_of_short_ones():
    room = Room()
    room.too_large.append(Size.of(padded(4, 100, 100)))
    assert len(room.parts([padded(40, 10, 10)])) == 1
    assert len(room.parts([padded(5, 100, 100)])) == 2
    assert len(room.parts([padded(4, 96, 100)])) == 2, "nearly as large is as large"
    assert len(room.parts([padded(2, 100, 100)])) == 1


def test_the_source_needs_room_too():
    room = Room()
    room.too_large.append(Size.of(padded(8, 50, 50)))
    assert len(room.parts([padded(8, 20, 50)])) == 1
    assert len(room.parts([padded(8, 50, 50)])) == 2


def test_parts_are_all_the_pairs_in_order_and_a_single_pair_stays_whole():
    room = Room()
    room.too_large.append(Size.of(padded(1, 10, 10)))
    parts = room.parts([padded(3, 10, 10), padded(1, 12, 12)])
    assert [part.pairs_B.tolist() for part in parts] == [[0], [2], [1], [0]]


@pytest.mark.thorough
def test_once_the_memory_is_back_batches_are_whole_again(experiment, config, monkeypatch, capsys):
    """Tried again after 2 updates, then after 4; without an end of the lack, later and later."""
    monkeypatch.setattr(out_of_memory, "FIRST_WAIT", 2)
    failures, splits, _ = updates_with_room_for(600, 10, experiment, config, "packed")
    assert failures == [1, 0, 0, 1, 0, 0, 0, 0, 1, 0]
    assert splits == [1] * 10
    said = capsys.readouterr().err.splitlines()
    assert [line.startswith("warning: ") for line in said] == [True, False, True, False, True]
    assert "did not fit into the memory of cpu" in said[0]

    config = load_config(experiment, ["model.dropout=0.0", "training.adam_epsilon=0.001"])
    failures, splits, found = updates_with_room_for(600, 5, experiment, config, "packed", positions_after=10**9)
    assert (failures, splits) == ([1, 0, 0, 0, 0], [1, 1, 1, 0, 0])
    _, _, whole = updates_with_room_for(10**9, 5, experiment, config, "packed")
    for name, weight in whole.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-5)
