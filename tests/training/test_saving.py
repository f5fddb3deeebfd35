"""Checkpoints that a thread writes beside training, here on the CPU."""

import json
import os
import threading
import time
from collections import defaultdict
from functools import partial

import pytest
from helpers.processes import PATIENCE, ended, start, work_of_ranks
from helpers.tiny import assert_same_weights, log_records, train_tiny, weights_at

from transformer_mt import train
from transformer_mt.base.errors import TrainingError
from transformer_mt.training import loop
from transformer_mt.training.run import checkpoint
from transformer_mt.training.run.checkpoint import checkpoint_path, damage, saved_steps


def slowed(monkeypatch):
    """As `slow_disk`, in this process from now on."""
    real_update, real_save = loop.one_update, checkpoint.save
    updated = defaultdict(threading.Event)  # by the step of the update
    happening = {}

    def one_update(learner, batches, rate, step, *others):
        try:
            return real_update(learner, batches, rate, step, *others)
        finally:
            updated[step].set()
            if "update" in happening:
                happening["update"](step)

    def save(run_dir, tensors, progress, *others):
        if threading.current_thread() is not threading.main_thread():
            assert updated[progress.step + 1].wait(PATIENCE)
            if "save" in happening:
                happening["save"](progress.step)
        real_save(run_dir, tensors, progress, *others)

    monkeypatch.setattr(loop, "one_update", one_update)
    monkeypatch.setattr(checkpoint, "save", save)
    monkeypatch.setattr(checkpoint, "writes_beside", lambda device: True)
    return happening.update


@pytest.fixture
def slow_disk(monkeypatch):
    """Each checkpoint that a thread writes is only begun after the next update. A function sets what happens then."""
    yield slowed(monkeypatch)
    for thread in threading.enumerate():
        if thread.name.startswith("checkpoint"):
            thread.join()


def without_times(record):
    timed = {"seconds", "tokens_per_second", "valid_seconds", "memory_megabytes"}
    return {key: value for key, value in record.items() if key not in timed}


def test_they_are_those_of_a_run_that_waits_for_the_disk(experiment, trained, tmp_path, slow_disk):
    run = train_tiny(experiment, tmp_path)
    assert saved_steps(run) == saved_steps(trained)
    for step in saved_steps(run):
        one, other = checkpoint_path(run, step), checkpoint_path(trained, step)
        for file in ("model.safetensors", "training.safetensors"):
            assert (one / file).read_bytes() == (other / file).read_bytes()
        progress, expected = (json.loads((path / "state.json").read_text())["progress"] for path in (one, other))
        assert without_times(progress) == without_times(expected)
    assert os.readlink(run / "checkpoints" / "best") == os.readlink(trained / "checkpoints" / "best")
    assert list(map(without_times, log_records(run))) == list(map(without_times, log_records(trained)))


def test_an_error_of_training_waits_for_the_one_that_is_being_written(experiment, tmp_path, slow_disk):
    def fails(step):
        if step == 5:
            raise ZeroDivisionError

    slow_disk({"update": fails, "save": lambda step: time.sleep(0.1)})
    with pytest.raises(ZeroDivisionError):
        train_tiny(experiment, tmp_path)
    assert saved_steps(tmp_path)[-1] == 4
    assert damage(checkpoint_path(tmp_path, 4)) == ""


# No fork of this process: a fork of one that has threads, or has seen a GPU, may hang.
KILLED = """
import os, sys
from transformer_mt import train
from transformer_mt import train
from transformer_mt.training.run import checkpoint
from transformer_mt.training import loop

def save(run_dir, tensors, progress, *others):
    if progress.step == 6:
        (run_dir / "checkpoints" / "step-00000006.partial").mkdir()
        os._exit(9)
    whole(run_dir, tensors, progress, *others)

whole, checkpoint.save = checkpoint.save, save
checkpoint.writes_beside = lambda device: True
train.main(sys.argv[1:])
"""


@pytest.mark.thorough
def test_killed_while_it_is_written_the_run_goes_on_from_the_one_before(experiment, trained, tmp_path, slow_disk):
    run = tmp_path / "run"
    assert ended(start(tmp_path, "killed", "-c", KILLED, experiment, f"run_dir={run}")) == [9]
    assert saved_steps(run)[-1] == 4
    assert_same_weights(weights_at(train_tiny(experiment, run), 12), weights_at(trained, 12))
    assert list(map(without_times, log_records(run))) == list(map(without_times, log_records(trained)))


def train_with_failures(experiment, run, *settings):
    """The work of a rank, which is a process of its own."""

    def fails(step):
        if step == 4:
            raise OSError("no room")

    with pytest.MonkeyPatch.context() as monkeypatch:
        slowed(monkeypatch)({"save": fails})
        try:  # the first rank says the error, the other one ends with its status
            assert train.main([str(experiment), f"run_dir={run}", *settings]) == 2
        except TrainingError as error:
            assert str(error) == "no room"


@pytest.mark.thorough
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_two_ranks_save_beside_training_and_both_learn_of_a_failure(experiment, tmp_path, sharding):
    run = tmp_path / "run"
    settings = (f"training.sharding={sharding}", "training.validate_every=12")
    work_of_ranks(2, partial(train_with_failures, experiment, run, *settings))
    assert saved_steps(run) == [2]
