"""Only the shapes of many micro-batches are compiled."""

import torch

from transformer_mt.kernels.device import choose_device
from transformer_mt.models.layouts import Packed
from transformer_mt.training.learning import CommonShapes, patience_on


def packed(num_rows):
    return Packed(torch.zeros(num_rows, dtype=torch.long), torch.tensor([0, num_rows]), torch.arange(num_rows), 64)


def ways(patience, *shapes):
    """For micro-batches of these shapes, one after the other: whether each is computed by what is compiled."""
    features = CommonShapes(lambda source, target: torch.tensor(0), lambda source, target: torch.tensor(1), patience)
    return [int(features(packed(source), packed(target))) for source, target in shapes]


def test_the_whole_is_compiled_at_once_and_a_part_is_not():
    whole, half, quarter = (100, 90), (60, 50), (30, 25)
    assert ways(2, whole, half, whole, quarter, whole, half) == [1, 0, 1, 0, 1, 0]


def test_a_part_that_comes_often_is_compiled_after_all():
    whole, half, quarter = (100, 90), (60, 50), (30, 25)
    assert ways(2, whole, half, half, quarter, half, half, quarter) == [1, 0, 0, 0, 1, 1, 0]


def test_where_all_ranks_have_parts_alone_these_are_compiled_at_once():
    assert ways(2, *[(60, 50)] * 3) == [1, 1, 1]


def test_a_run_that_begins_with_the_end_of_an_epoch_compiles_the_whole_too():
    assert ways(2, (30, 25), (100, 90), (30, 25), (100, 90)) == [1, 1, 0, 1]


def test_on_a_cpu_every_shape_is_compiled_so_that_a_run_that_goes_on_rounds_the_same():
    assert ways(0, (100, 90), (60, 50), (100, 90)) == [1, 1, 1]
    assert patience_on(choose_device("cpu", "fp32")) == 0
