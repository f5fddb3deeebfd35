"""Numbers of updates that are read later than they are computed, here on the CPU."""

import os
import signal

import pytest
import torch
from helpers.pretended_gpus import two_gpus
from helpers.tiny import assert_same_weights, log_records, train_tiny, weights_at

from transformer_mt import train
from transformer_mt.training import loop, running
from transformer_mt.training.in_flight import InFlight, Update, _start_copy
from transformer_mt.training.progress import Progress
from transformer_mt.training.update import Numbers


def update(step):
    number = torch.tensor(float(step))
    numbers = Numbers(number, number, number, number, torch.tensor(True))
    return Update(numbers, step, 0.1, step, step, 1, torch.tensor([step]))


@pytest.mark.parametrize(("lead", "read"), [(0, [[1], [2], [3], [4], [5]]), (2, [[], [], [1], [2, 3, 4], []])])
def test_each_update_is_read_once_and_in_order_with_its_own_progress(lead, read):
    in_flight, found = InFlight(lead), []
    for step in range(1, 6):
        in_flight.send(update(step), wait_for_all=step == 4)
        arrived = in_flight.read(Progress(step=step), all_of_them=step == 4)
        assert all(then.step == each.step == int(each.numbers.nll) for then, each in arrived)
        found.append([each.step for _, each in arrived])
    assert found == read


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_numbers_are_waited_for_on_the_gpu_that_computes_them(device):
    with two_gpus():
        number = torch.ones((), device=device)
        sent = _start_copy(Update(Numbers(*[number] * 5), 1, 0.1, 1, 1, 1, torch.tensor([1])))
    assert sent.update.numbers.nll.device == sent.update.numbers.is_finite.device == torch.device("cpu")
    assert sent.copied.device == torch.device(device)


def numbers(run_dir):
    timed = {"seconds", "tokens_per_second", "valid_seconds", "memory_megabytes"}
    return [{key: value for key, value in record.items() if key not in timed} for record in log_records(run_dir)]


def test_the_log_is_that_of_a_run_that_reads_at_once(experiment, tmp_path, monkeypatch):
    settings = ("training.log_every=3", "training.save_every=5", "training.validate_every=10")
    at_once = train_tiny(experiment, tmp_path / "at-once", *settings)
    monkeypatch.setattr(running, "lead_on", lambda device: 2)
    assert numbers(train_tiny(experiment, tmp_path / "later", *settings)) == numbers(at_once)
    assert_same_weights(weights_at(tmp_path / "later", 12), weights_at(at_once, 12))


def test_a_signal_leaves_no_update_unread_and_the_log_goes_on(experiment, trained, tmp_path, monkeypatch):
    settings = (str(experiment), f"run_dir={tmp_path}", "training.log_every=1")
    real_update = loop.one_update
    monkeypatch.setattr(running, "lead_on", lambda device: 2)

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
