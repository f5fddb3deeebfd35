"""Numbers of updates that are read later than they are computed, here on the CPU."""

import os
import signal

import pytest
from helpers.tiny import assert_same_weights, log_records, train_tiny, weights_at

from transformer_mt import train
from transformer_mt.batches.loader import Loader
from transformer_mt.training import loop
from transformer_mt.training.run import running
from transformer_mt.training.run.checkpoint import saved_steps
from transformer_mt.training.run.running import count_update


def numbers(run_dir):
    timed = {"seconds", "tokens_per_second", "valid_seconds", "memory_megabytes"}
    return [{key: value for key, value in record.items() if key not in timed} for record in log_records(run_dir)]


@pytest.mark.thorough
def test_the_log_is_that_of_a_run_that_reads_at_once(experiment, tmp_path, monkeypatch):
    settings = ("training.log_every=3", "training.save_every=5", "training.validate_every=10")
    at_once = train_tiny(experiment, tmp_path / "at-once", *settings)
    monkeypatch.setattr(running, "reads_at_once", lambda device: False)
    assert numbers(train_tiny(experiment, tmp_path / "later", *settings)) == numbers(at_once)
    assert_same_weights(weights_at(tmp_path / "later", 12), weights_at(at_once, 12))


@pytest.mark.thorough
def test_a_signal_leaves_no_update_unread_and_the_log_goes_on(experiment, trained, tmp_path, monkeypatch):
    settings = (str(experiment), f"run_dir={tmp_path}", "training.log_every=1")
    real_update = loop.one_update
    monkeypatch.setattr(running, "reads_at_once", lambda device: False)

    def interrupted(*arguments):
        made = real_update(*arguments)
        if made.step == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(loop, "one_update", interrupted)
        assert train.main(settings) == 130
    assert [record["step"] for record in log_records(tmp_path) if "loss" in record] == [1, 2, 3, 4, 5]
    assert train.main(settings) == 0
    assert [record["step"] for record in log_records(tmp_path) if "loss" in record] == list(range(1, 13))
    assert_same_weights(weights_at(tmp_path, 12), weights_at(trained, 12))


@pytest.mark.thorough
def test_a_signal_while_an_order_is_made_leaves_no_update_uncounted(experiment, tmp_path, monkeypatch):
    rarely = [f"training.{name}_every=100" for name in ("log", "validate", "save")]
    make, counted = Loader.order, []

    def noting(progress, update, *others):
        counted.append(update.step)
        return count_update(progress, update, *others)

    def interrupted(self, epoch, stage):
        if epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return make(self, epoch, stage)

    monkeypatch.setattr(running, "reads_at_once", lambda device: False)
    monkeypatch.setattr(running, "count_update", noting)
    monkeypatch.setattr(Loader, "order", interrupted)
    arguments = [str(experiment), f"run_dir={tmp_path}", "training.max_steps=100", *rarely]
    assert train.main(arguments) == 128 + signal.SIGINT
    assert counted == list(range(1, saved_steps(tmp_path)[-1] + 1))
