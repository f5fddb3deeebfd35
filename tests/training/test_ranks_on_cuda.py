"""Two ranks, each with a GPU of its own and connected by NCCL, make the updates of one."""

import pytest
import torch
from helpers.on_gpu import BF16_ROUNDING
from helpers.processes import ended, records, said, start_ranks, training
from helpers.tiny import train_tiny, weights_at

from transformer_mt.training.run.checkpoint import checkpoint_path, damage

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]

# Without dropout, and with an epsilon under which gradients that are sums of rounding errors make no long steps.
EQUAL = ("model.dropout=0.0", "training.adam_epsilon=0.001", "training.average_decay=0.9", "training.device=cuda")
PACKED = ("training.layout=packed", "training.precision=bf16", "model.num_heads=1")
STEPS = 12

shardings = pytest.mark.parametrize("sharding", ["none", "full"])


def run_of_two(experiment, run_dir, sharding, *overrides):
    own = (*EQUAL, *overrides, f"training.sharding={sharding}")
    ranks = start_ranks(2, run_dir / "output", *training(experiment, run_dir, *own))
    assert ended(*ranks) == [0, 0], said(*ranks)
    assert said(ranks[1]) == ""
    return run_dir


def assert_near(run_dir, other, tolerance):
    assert damage(checkpoint_path(run_dir, STEPS)) == ""
    found = weights_at(run_dir, STEPS)
    for name, weight in weights_at(other, STEPS).items():
        assert (found[name] - weight).norm() <= tolerance * weight.norm(), name
    ours, theirs = ([record["loss"] for record in records(run)] for run in (run_dir, other))
    assert ours == pytest.approx(theirs, rel=tolerance)


@shardings
def test_two_gpus_make_the_run_of_one_in_fp32(experiment, tmp_path, sharding):
    """Sums over ranks are ordered otherwise; 12 updates hardly move that apart."""
    alone = train_tiny(experiment, tmp_path / "alone", *EQUAL)
    assert_near(run_of_two(experiment, tmp_path / "two", sharding), alone, 1e-3)


@shardings
def test_two_gpus_make_the_run_of_one_with_packed_sentences_in_bf16(experiment, tmp_path, sharding):
    """The parts of a micro-batch are rounded apart; Adam's steps of 12 updates are as far off as their gradients."""
    alone = train_tiny(experiment, tmp_path / "alone", *EQUAL, *PACKED)
    assert_near(run_of_two(experiment, tmp_path / "two", sharding, *PACKED), alone, 25 * BF16_ROUNDING)


@shardings
def test_a_run_of_two_gpus_goes_on_on_one(experiment, tmp_path, sharding):
    alone = train_tiny(experiment, tmp_path / "alone", *EQUAL)
    run = run_of_two(experiment, tmp_path / "run", sharding, "training.max_steps=6")
    train_tiny(experiment, run, *EQUAL, f"training.max_steps={STEPS}")
    assert_near(run, alone, 1e-3)
