"""Real processes, connected by gloo: as many ranks, the same training."""

import fcntl
import json
import math
import os
import signal
import socket
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
import torch
from helpers.messages import message, says
from helpers.processes import (
    ended,
    kill,
    records,
    said,
    start_ranks,
    start_torchrun,
    training,
    wait_until,
    work_of_ranks,
)
from helpers.rank_results import Job, results, write_results
from helpers.tiny import poisoned_checkpoint, train_tiny
from safetensors.torch import load_file
from torch import nn

from transformer_mt import train
from transformer_mt.base.errors import CorpusError, RankError, TrainingError
from transformer_mt.base.languages import EOS
from transformer_mt.training import distributed
from transformer_mt.training.distributed import Ranks, all_ranks
from transformer_mt.training.run import checkpoint
from transformer_mt.training.run.checkpoint import checkpoint_path, damage, saved_steps

# Adam makes steps of one size of gradients of any size above its epsilon. Those of the keys' biases are sums of
# rounding errors, for a softmax does not see what they add: with the usual epsilon they walk as the errors do.
EQUAL = ["model.dropout=0.0", "training.adam_epsilon=0.001"]

JOBS = {
    "one micro-batch": Job([*EQUAL, "training.tokens_per_update=0"]),
    "three of them": Job([*EQUAL, "training.tokens_per_update=1300", "training.average_decay=0.9"]),
    "clipped": Job([*EQUAL, "training.clip_norm=0.3", "model.output_bias=true"]),
    "single pairs": Job([*EQUAL, "training.tokens_per_update=0"], pairs_per_batch=1),
    "dropout": Job(["model.dropout=0.3", EQUAL[1], "training.tokens_per_update=2600"], multiple=6),
    "packed": Job([*EQUAL, "training.layout=packed"]),
}
JOBS |= {
    f"{name}, sharded": replace(job, overrides=[*job.overrides, "training.sharding=full"])
    for name, job in JOBS.items()
    if name != "packed"
}

FP16 = Job([*EQUAL, "training.precision=fp16", "training.tokens_per_update=1300"], multiple=2)
# A rank that has no pair has a gradient of zeros.
OVERFLOW = Job([*EQUAL, "training.precision=fp16", "training.tokens_per_update=0"], pairs_per_batch=1, scale=2.0**60)


RUN = [
    *EQUAL,
    "training.average_decay=0.9",
    "training.max_steps=40",
    "training.save_every=2",
    "training.validate_every=20",
    "training.keep_last=100",
]


@pytest.fixture(scope="module")
def unbroken(experiment, tmp_path_factory):
    """A run of one process."""
    return train_tiny(experiment, tmp_path_factory.mktemp("unbroken"), *RUN)


@pytest.fixture(scope="module")
def validations(experiment, tmp_path_factory):
    """Jobs that validate a model which has learnt to write something, whole and sharded."""
    run = tmp_path_factory.mktemp("trained")
    learning = ["training.peak_lr=0.02", "training.warmup_steps=20", "training.max_steps=200"]
    rarely = [f"training.{key}_every=200" for key in ("validate", "save", "log")]
    train_tiny(experiment, run, "model.norm=pre", "model.dropout=0.0", *learning, *rarely)
    overrides = ["model.norm=pre", f"training.initialise_from={checkpoint_path(run, 200)}"]
    return {
        f"validation, {sharding}": Job([*overrides, f"training.sharding={sharding}"], only_validate=True)
        for sharding in ("none", "full")
    }


def results_of_ranks(num_ranks, experiment, jobs, directory):
    """What `results` gives there, by job."""
    out = directory / "results.pt"
    work_of_ranks(num_ranks, partial(write_results, experiment, jobs, out))
    return torch.load(out)


def assert_equal_updates(num_ranks, experiment, jobs, validations, directory, later=1e-6, of_tensors=1e-5):
    torch.set_num_threads(1)
    found = results_of_ranks(num_ranks, experiment, jobs | validations, directory)
    for name, job in jobs.items():
        unsharded = [setting for setting in job.overrides if setting != "training.sharding=full"]
        expected = results(experiment, replace(job, overrides=unsharded), Ranks())
        for number, (update, single) in enumerate(zip(found[name]["updates"], expected["updates"], strict=True)):
            for key in ("num_labels", "num_batches", "pairs"):
                assert update[key] == single[key], name
            for key in ("loss", "nll", "gradient_norm"):
                assert update[key] == pytest.approx(single[key], rel=later if number else 1e-6), (name, key)
        assert_close(found[name]["tensors"], expected["tensors"], name, of_tensors)
    for name in validations:
        expected = results(experiment, validations["validation, none"], Ranks())
        assert expected["chrf"] > 1.0, "translations that have something in common with the references"
        assert found[name] == expected | {"nll": pytest.approx(expected["nll"], rel=1e-12)}
    return found


def assert_close(found, expected, name, error=1e-5):
    assert found.keys() == expected.keys()
    for tensor, value in expected.items():
        message = f"{name}: {tensor} "
        torch.testing.assert_close(
            found[tensor], value, rtol=error, atol=error, msg=lambda text, message=message: message + text
        )


@pytest.mark.thorough
def test_two_ranks_make_the_updates_of_one(experiment, tmp_path):
    """Over micro-batches some of which are to be split."""
    found = assert_equal_updates(2, experiment, {"three of them": JOBS["three of them"]}, {}, tmp_path)
    assert {update["num_batches"] % 2 for update in found["three of them"]["updates"]} == {0, 1}


@pytest.mark.thorough
@pytest.mark.parametrize("sharding", ["none", pytest.param("full", marks=pytest.mark.slow)])
def test_messages_in_bf16_round_the_gradients_and_nothing_else(sharding, experiment, tmp_path):
    own = ["training.message_precision=bf16", f"training.sharding={sharding}"]
    job = replace(JOBS["three of them"], overrides=[*JOBS["three of them"].overrides, *own])
    torch.set_num_threads(1)
    found = results_of_ranks(2, experiment, {"bf16": job}, tmp_path)["bf16"]
    exact = results(experiment, JOBS["three of them"], Ranks())
    (first, *later), (expected, *_) = found["updates"], exact["updates"]
    assert first["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    norm = expected["gradient_norm"]
    assert first["gradient_norm"] == pytest.approx(norm, rel=2**-8) and first["gradient_norm"] != pytest.approx(
        norm, rel=1e-6
    )
    assert [each["loss"] for each in later] == pytest.approx([each["loss"] for each in exact["updates"][1:]], rel=2**-8)
    assert_close(found["tensors"], exact["tensors"], "bf16", 1e-3)


def summed_in_bf16(out):
    """Write this rank's sum of two gradients, one of which only the first rank has."""
    with all_ranks() as ranks:
        torch.manual_seed(ranks.rank)
        parameters = [nn.Parameter(torch.zeros(50, 3)), nn.Parameter(torch.zeros(7))]
        parameters[0].grad = torch.randn(50, 3)
        if ranks.is_first:
            parameters[1].grad = torch.randn(7)
        own = [torch.zeros_like(each) if each.grad is None else each.grad.clone() for each in parameters]
        ranks.sum_gradients(parameters, "bf16")
        torch.save([own, [each.grad for each in parameters]], out / f"{ranks.rank}.pt")


@pytest.mark.thorough
def test_all_ranks_get_the_same_sum_of_gradients_in_bf16(tmp_path):
    work_of_ranks(2, partial(summed_in_bf16, tmp_path))
    (first, summed), (second, same) = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    for one, other, total, equal in zip(first, second, summed, same, strict=True):
        assert total.dtype == torch.float32 and torch.equal(total, equal)
        assert torch.equal(total, (one.bfloat16() + other.bfloat16()).float())


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["none", pytest.param("full", marks=pytest.mark.slow)])
def test_in_fp16_all_ranks_scale_the_loss_alike_and_skip_together(sharding, experiment, tmp_path):
    """After an update, weights that differ by a rounding of fp32 may differ by one of fp16 in the next product.

    Where a gradient is small, the step of Adam then differs, too: we allow a tenth of the rate, which is 0.005.
    """
    own = f"training.sharding={sharding}"
    jobs = {"fits": replace(FP16, overrides=[*FP16.overrides, own])}
    assert_equal_updates(2, experiment, jobs, {}, tmp_path, later=2**-11, of_tensors=5e-4)
    overflow = replace(OVERFLOW, overrides=[*OVERFLOW.overrides, own])
    found = results_of_ranks(2, experiment, {"overflow": overflow}, tmp_path)["overflow"]
    assert [update["empty"] for update in found["updates"]] == [1] * 4
    assert not any(math.isfinite(update["gradient_norm"]) for update in found["updates"])
    assert found["tensors"]["scaler.scale"] == 2.0**56
    same = results(experiment, OVERFLOW, Ranks())["tensors"]
    assert_close(found["tensors"], same, "overflow")


@pytest.mark.slow
def test_updates_go_on_after_a_validation_in_which_a_rank_had_nothing_to_do(experiment, tmp_path):
    jobs = {"with a validation": Job([*EQUAL, "training.sharding=full"], validates_between=True)}
    assert_equal_updates(2, experiment, jobs, {}, tmp_path)


@pytest.mark.slow
def test_two_ranks_make_the_updates_and_the_validation_of_one(experiment, validations, tmp_path):
    found = assert_equal_updates(2, experiment, JOBS, validations, tmp_path)
    sizes = {name: [update["num_batches"] for update in found[name]["updates"]] for name in JOBS}
    assert set(sizes["dropout"]) == {6}, "none is to be split, for its parts would draw dropout anew"
    assert {size % 2 for size in sizes["three of them"]} == {0, 1}, "some are to be split, and some not"
    assert [update["empty"] for update in found["single pairs"]["updates"]] == [1] * 4


@pytest.mark.slow
def test_three_ranks_make_the_updates_and_the_validation_of_one(experiment, validations, tmp_path):
    found = assert_equal_updates(3, experiment, JOBS, validations, tmp_path)
    assert [update["empty"] for update in found["single pairs"]["updates"]] == [2] * 4


def assert_same_run(run_dir, expected):
    """The weights, the optimizer, the moving average and the order of the data of another run, to rounding."""
    for file in ("model.safetensors", "training.safetensors"):
        assert_close(
            load_file(checkpoint_path(run_dir, 40) / file), load_file(checkpoint_path(expected, 40) / file), file
        )
    for key in ("step", "epoch", "tokens"):
        assert [record[key] for record in records(run_dir)] == [record[key] for record in records(expected)]


def run_ranks(num_ranks, experiment, run_dir, *overrides):
    """Ranks that train, and end well; the first alone has spoken, and nothing twice."""
    ranks = start_ranks(num_ranks, run_dir / "output", *training(experiment, run_dir, *RUN, *overrides))
    assert ended(*ranks) == [0] * num_ranks, said(*ranks)
    assert said(*ranks[1:]) == ""
    # Two validations may show the same translation, below their scores.
    lines = [line for line in said(ranks[0]).splitlines() if not line.startswith("  ")]
    assert len(set(lines)) == len(lines) > 3


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_two_ranks_that_were_killed_are_resumed_by_one(experiment, unbroken, tmp_path, sharding):
    ranks = start_ranks(2, tmp_path, *training(experiment, tmp_path / "run", *RUN, f"training.sharding={sharding}"))
    wait_until(lambda: saved_steps(tmp_path / "run"), *ranks)
    kill(*ranks)
    assert 0 < saved_steps(tmp_path / "run")[-1] < 40
    assert_same_run(train_tiny(experiment, tmp_path / "run", *RUN), unbroken)


@pytest.mark.slow
def test_a_run_goes_on_with_any_number_of_ranks_and_any_sharding(experiment, unbroken, tmp_path):
    train_tiny(experiment, tmp_path, *RUN, "training.max_steps=6")
    run_ranks(2, experiment, tmp_path, "training.max_steps=16", "training.sharding=full")
    run_ranks(3, experiment, tmp_path, "training.max_steps=24", "training.sharding=full")
    run_ranks(2, experiment, tmp_path, "training.max_steps=32", "training.sharding=none")
    train_tiny(experiment, tmp_path, *RUN)
    assert_same_run(tmp_path, unbroken)
    starts = json.loads((tmp_path / "run.json").read_text())
    found = [(start["from_update"], start["num_ranks"]) for start in starts]
    assert found == [(0, 1), (6, 2), (16, 3), (24, 2), (32, 1)]


@pytest.mark.slow
def test_two_ranks_say_a_mistake_once(experiment, tmp_path):
    def errors(*overrides):
        ranks = start_ranks(2, tmp_path, *training(experiment, tmp_path / "run", *overrides))
        assert ended(*ranks) == [2, 2], said(*ranks)
        assert said(ranks[1]) == ""
        return said(ranks[0])

    [error] = errors("training.max_stps=3").splitlines()
    assert says(error, "no-such-key", "override training.max_stps=3: training.max_stps", "'max_steps'")
    assert errors(f"data_dir={tmp_path}").count(f"{tmp_path} is not prepared") == 1
    bad = errors(*poisoned_checkpoint(experiment, tmp_path / "poisoned", EOS))
    assert says(bad, "updates-not-finite", "10") and bad.count("error: ") == 1

    descriptor = os.open(tmp_path / "run" / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    locked = errors()
    os.close(descriptor)
    assert says(locked, "directory-in-use", str(tmp_path / "run"), "run_dir") and locked.count("error: ") == 1


@pytest.mark.parametrize("own", [OSError("its disk is full"), CorpusError("its text is damaged"), RankError("its GPU")])
def test_an_error_that_the_first_rank_may_not_have_is_not_lost(experiment, monkeypatch, own):
    def failing(config, ranks):
        raise errors.pop()

    errors = [own, TrainingError("of all ranks")]
    monkeypatch.setattr(train, "all_ranks", lambda: nullcontext(Ranks(rank=1)))
    monkeypatch.setattr(train, "train_run", failing)
    assert train.main([str(experiment)]) == 2
    with pytest.raises(type(own), match=str(own)):
        train.main([str(experiment)])


@pytest.mark.thorough
def test_what_only_the_second_rank_meets_with_is_said_by_the_first(experiment, tmp_path):
    missing = tmp_path / "missing"  # as on a machine where a disk is not mounted
    arguments = training(experiment, tmp_path / "run", "training.max_steps=2", "training.warmup_steps=1")
    ranks = start_ranks(2, tmp_path, *arguments, only_second=[f"data_dir={missing}"])
    assert ended(*ranks) == [2, 2], said(*ranks)
    assert says(said(ranks[0]), "data-not-prepared", str(missing))
    assert said(ranks[1]) == ""


@pytest.mark.slow
def test_weights_that_only_the_second_rank_lacks_are_said_by_the_first(experiment, tmp_path):
    train_tiny(experiment, tmp_path / "other", "training.max_steps=1", "training.warmup_steps=1")
    first, missing = checkpoint_path(tmp_path / "other", 1), tmp_path / "missing"
    arguments = training(experiment, tmp_path / "run", f"training.initialise_from={first}")
    ranks = start_ranks(2, tmp_path, *arguments, only_second=[f"training.initialise_from={missing}"])
    assert ended(*ranks) == [2, 2], said(*ranks)
    assert says(said(ranks[0]), "initialise-from-without-weights", str(missing))
    assert said(ranks[1]) == ""


def resume_unreadable(experiment, run, *overrides):
    """The work of a rank; the second cannot read the checkpoint."""

    def unreadable(path):
        raise OSError(f"{path} cannot be read")

    with pytest.MonkeyPatch.context() as patch:
        if os.environ["RANK"] == "1":
            patch.setattr(checkpoint, "read_tensors", unreadable)
        try:  # the first rank says the error, the other one ends with its status
            assert train.main([str(experiment), f"run_dir={run}", *overrides]) == 2
        except TrainingError as error:
            assert str(error) == f"{checkpoint_path(run, 2)}/training.safetensors cannot be read"


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_a_checkpoint_that_only_the_second_rank_cannot_read_stops_both(experiment, tmp_path, sharding):
    train_tiny(experiment, tmp_path, *RUN, "training.max_steps=2")
    work_of_ranks(2, partial(resume_unreadable, experiment, tmp_path, *RUN, f"training.sharding={sharding}"))
    assert saved_steps(tmp_path) == [2]


SIGNALLED = ["training.max_steps=3000", "training.validate_every=3000", "training.keep_last=3000"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "who"),
    [(signal.SIGTERM, [1]), (signal.SIGINT, [0]), (signal.SIGINT, [0, 1]), (signal.SIGTERM, [0, 1])],
)
def test_a_signal_to_any_rank_finishes_the_update_and_saves(experiment, unbroken, tmp_path, number, who):
    run = tmp_path / "run"
    ranks = start_ranks(2, tmp_path, *training(experiment, run, *RUN, *SIGNALLED))
    wait_until(lambda: saved_steps(run), *ranks)
    for rank in who:
        ranks[rank].process.send_signal(number)
    assert ended(*ranks, within=30) == [128 + number] * 2, said(*ranks)
    assert_saved_and_goes_on(experiment, run, ranks[0], unbroken)
    assert said(ranks[1]) == ""


@pytest.mark.slow
@pytest.mark.parametrize(("num_ranks", "number"), [(2, signal.SIGTERM), (2, signal.SIGINT), (1, signal.SIGINT)])
def test_a_signal_to_torchrun_finishes_the_update_and_saves(experiment, unbroken, tmp_path, num_ranks, number):
    run = tmp_path / "run"
    agent = start_torchrun(num_ranks, tmp_path, *training(experiment, run, *RUN, *SIGNALLED))
    wait_until(lambda: saved_steps(run), agent)
    agent.process.send_signal(number)
    ended(agent, within=30)  # its status is its own: it tells of the signal, with a traceback
    assert_saved_and_goes_on(experiment, run, agent, unbroken)


def assert_saved_and_goes_on(experiment, run, speaker, unbroken):
    stopped = saved_steps(run)[-1]
    assert stopped < 40, "with that many updates since the signal it was not heeded"
    assert damage(checkpoint_path(run, stopped)) == ""
    assert f": {stopped} updates, " in speaker.out.read_text()
    assert "\nTo resume: " in speaker.out.read_text() and f" run_dir={run} " in speaker.out.read_text()
    assert_same_run(train_tiny(experiment, run, *RUN), unbroken)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_ends_the_others_with_an_error(experiment, unbroken, tmp_path, victim):
    run = tmp_path / "run"
    ranks = start_ranks(3, tmp_path, *training(experiment, run, *RUN, *SIGNALLED))
    wait_until(lambda: saved_steps(run), *ranks)
    kill(ranks[victim])
    assert saved_steps(run)[-1] < 40
    others = [rank for rank in ranks if rank is not ranks[victim]]
    assert ended(*others, within=60) == [2, 2], said(*others)
    for number, rank in enumerate(ranks):
        if rank in others:
            assert says(rank.err.read_text(), "rank-lost-connection", str(number))
            assert "Traceback" not in rank.err.read_text()
    assert_same_run(train_tiny(experiment, run, *RUN), unbroken)


@pytest.mark.slow
def test_torchrun_itself(experiment, unbroken, tmp_path):
    agent = start_torchrun(2, tmp_path, *training(experiment, tmp_path / "run", *RUN))
    assert ended(agent) == [0], said(agent)
    assert agent.out.read_text().count("parameters, 300 pairs") == 1
    assert_same_run(tmp_path / "run", unbroken)


def hang_on_the_second(said):
    """The work of a rank: the second does not come to a sum."""
    distributed.ANSWER = timedelta(seconds=5)
    waits_in_vain = pytest.raises(RankError) if os.environ["RANK"] != "1" else nullcontext()
    distributed.TIMEOUT = timedelta(seconds=2)
    with waits_in_vain as error, all_ranks() as ranks:
        ranks.max(0)
        if ranks.rank == 1:
            wait_until(said.exists)
        else:
            ranks.sum(torch.zeros(1))
    if os.environ["RANK"] == "0":
        said.write_text(str(error.value))


@pytest.mark.slow
def test_a_rank_that_hangs_is_named(tmp_path):
    work_of_ranks(3, partial(hang_on_the_second, tmp_path / "said"))
    assert says((tmp_path / "said").read_text(), "rank-lost-connection", "Ranks 1 failed")


@pytest.mark.thorough
def test_a_rank_whose_torchrun_is_gone_gives_up(monkeypatch):
    monkeypatch.setattr(distributed, "TIMEOUT", timedelta(seconds=0.3))
    with socket.socket() as unused:  # a port at which nobody listens
        unused.bind(("127.0.0.1", 0))
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": unused.getsockname()[1]}
        for name, value in {**environment, "RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1}.items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(RankError, match=message("rank-cannot-connect", "1")), all_ranks():
            pass
