"""training.max_minutes ends a run as training.max_steps does, and the rate falls to 0 at the end that comes first."""

import json
import os
import time
from dataclasses import replace
from functools import partial

import pytest
from helpers.processes import work_of_ranks
from helpers.tiny import assert_same_weights, log_records, status_and_error, train_tiny, weights_at

from transformer_mt import average, train
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.storage.checksums import checkpoint_path, saved_steps
from transformer_mt.training import loop
from transformer_mt.training.optimization import learning_rate
from transformer_mt.training.progress import (
    Progress,
    expected_end,
    is_due,
    is_trained,
    may_change,
    step_on_schedule,
)
from transformer_mt.training.run import running
from transformer_mt.training.run.checkpoint import load_progress, scheduled_steps

MINUTE = ("training.max_minutes=1", "training.schedule=linear", "training.max_steps=100", "training.log_every=1")


class Clock:
    """Each look at it takes some seconds."""

    def __init__(self, seconds):
        self.now, self.seconds = 1000.0, seconds

    def __call__(self):
        self.now += self.seconds
        return self.now


def train_by_own_clock(arguments, directory):
    """Train on this rank, whose clock is as much faster as its number is higher; write its rates."""
    rank = int(os.environ["RANK"])
    time.perf_counter, rates, real = Clock(1.0 + rank), [], loop.one_update

    def one_update(learner, batches, rate, *others):
        rates.append(rate)
        return real(learner, batches, rate, *others)

    loop.one_update = one_update
    assert train.main(arguments) == 0
    (directory / f"{rank}.json").write_text(json.dumps(rates))


@pytest.fixture
def clock(monkeypatch):
    """The only one: nothing depends on how fast this machine is."""
    found = Clock(2.0)
    monkeypatch.setattr(running.time, "perf_counter", found)
    return found


def settings(**changes):
    return TrainingConfig(**{"schedule": "linear", "max_steps": 400, "warmup_steps": 40, "max_minutes": 10} | changes)


def rates_until_the_end(seconds_of_update, chosen):
    progress, rates = Progress(), []
    while not is_trained(progress, chosen):
        rates.append(learning_rate(step_on_schedule(progress, chosen), chosen))
        progress = replace(progress, step=progress.step + 1, elapsed=progress.elapsed + seconds_of_update)
    return rates


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize(("seconds_of_update", "num_updates"), [(1.0, 400), (1.5, 400), (3.0, 200), (60.0, 10)])
def test_the_rate_falls_to_0_at_the_end_that_comes_first(schedule, seconds_of_update, num_updates):
    chosen = settings(schedule=schedule)
    rates = rates_until_the_end(seconds_of_update, chosen)
    assert len(rates) == num_updates and min(rates) > 0
    fall = rates[rates.index(max(rates)) :]
    assert fall == sorted(fall, reverse=True) and len(fall) == pytest.approx(0.9 * num_updates, abs=1)
    assert fall[-1] < 1.2 * chosen.peak_lr / len(fall)


def test_the_rates_of_schedules_without_an_end_are_those_of_the_step():
    for schedule in ("inverse_sqrt", "constant"):
        chosen = settings(schedule=schedule)
        assert rates_until_the_end(3.0, chosen) == [learning_rate(step, chosen) for step in range(1, 201)]


def test_without_a_limit_the_time_changes_no_rate():
    chosen = settings(max_minutes=0)
    expected = [learning_rate(step, chosen) for step in range(1, 401)]
    assert rates_until_the_end(1e9, chosen) == expected


def test_time_for_a_last_validation_is_kept():
    before, chosen = Progress(step=7, elapsed=500.0, longest_validation=99.0), settings()
    after = replace(before, elapsed=501.0)
    assert not is_trained(before, chosen) and not is_due(1000, before, chosen)
    assert is_trained(after, chosen) and is_due(1000, after, chosen)
    assert not is_trained(replace(after, validation_due=True), chosen), "its last validation is to come"


def test_a_validation_longer_than_all_the_time_ends_training_at_once():
    assert is_trained(Progress(step=7, elapsed=1.0, longest_validation=900.0), settings())
    assert not is_trained(Progress(), settings(max_minutes=1e-6)), "it makes one update"


def test_the_end_that_is_shown_is_that_of_the_clock_or_of_the_updates():
    assert expected_end(Progress(), settings()) == 400
    assert expected_end(Progress(step=50, elapsed=300.0), settings()) == 100
    assert expected_end(Progress(step=390, elapsed=300.0), settings()) == 400
    assert expected_end(Progress(step=90, elapsed=700.0), settings()) == 90


@pytest.mark.parametrize("schedule", ["linear", "inverse_sqrt"])
def test_the_end_may_change_if_no_rate_depends_on_it(schedule):
    for key in ("training.max_steps", "training.max_minutes"):
        assert may_change(key, settings(schedule=schedule)) == (schedule == "inverse_sqrt")


def test_the_last_update_is_saved_validated_and_averaged_and_it_ends_once(experiment, tmp_path, clock, capsys):
    run = train_tiny(experiment, tmp_path / "run", *MINUTE, "training.validate_every=6", "training.save_every=1000")
    said = capsys.readouterr()
    last = saved_steps(run)[-1]
    assert 6 < last < 30
    assert [record["step"] for record in log_records(run) if "valid_nll" in record][-1] == last
    records = [record for record in log_records(run) if "loss" in record]
    assert [record["step"] for record in records] == list(range(1, last + 1))
    assert 0 < records[-1]["learning_rate"] < 0.2 * max(record["learning_rate"] for record in records)
    assert f"{last} updates in training.max_minutes=1, " in said.out and f"update {last}/{last}  " in said.err
    before = (checkpoint_path(run, last) / "state.json").read_text()
    assert train.main([str(experiment), f"run_dir={run}", *MINUTE, "training.validate_every=6"]) == 0
    assert f"already trained, {last} updates\n" in capsys.readouterr().out
    assert (checkpoint_path(run, last) / "state.json").read_text() == before
    assert average.main([str(run), "choose=last", "checkpoints=1"]) == 0
    assert f"the checkpoint of update {last}," in capsys.readouterr().out


@pytest.mark.thorough
def test_ranks_with_different_clocks_have_one_rate_and_end_together(experiment, tmp_path):
    arguments = [str(experiment), f"run_dir={tmp_path / 'run'}", *MINUTE, "training.precision=fp32"]
    work_of_ranks(2, partial(train_by_own_clock, arguments, tmp_path))
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second and 3 < len(first) < 60


def test_the_last_checkpoint_is_on_schedule_if_the_clock_ended_training(tmp_path):
    for step in (4, 7):
        checkpoint_path(tmp_path, step).mkdir(parents=True)
    newest, chosen = Progress(step=7, elapsed=60.0), settings(max_minutes=1, save_every=4)
    assert scheduled_steps(tmp_path, newest, chosen) == [4, 7]
    assert scheduled_steps(tmp_path, replace(newest, elapsed=59.0), chosen) == [4], "a signal ended it"


def test_the_time_counts_on_after_a_restart(experiment, tmp_path, clock, monkeypatch):
    unbroken = saved_steps(train_tiny(experiment, tmp_path / "unbroken", *MINUTE))[-1]
    real, stopped_at = running.StopSignal.number, unbroken // 2

    def number(self):
        steps = saved_steps(tmp_path / "run")
        return 15 if steps and steps[-1] >= stopped_at else real(self)

    arguments = [str(experiment), f"run_dir={tmp_path / 'run'}", *MINUTE]
    with monkeypatch.context() as patch:
        patch.setattr(running.StopSignal, "number", number)
        assert train.main(arguments) == 143
    stopped = load_progress(checkpoint_path(tmp_path / "run", saved_steps(tmp_path / "run")[-1]))
    assert stopped_at <= stopped.step < unbroken and 0 < stopped.elapsed < 60
    assert train.main(arguments) == 0
    assert saved_steps(tmp_path / "run")[-1] == pytest.approx(unbroken, abs=2)


def test_a_checkpoint_from_before_the_clock_is_resumed(experiment, trained, tmp_path):
    run = train_tiny(experiment, tmp_path / "run", "training.max_steps=6")
    state = checkpoint_path(run, 6) / "state.json"
    content = json.loads(state.read_text())
    for name in ("elapsed", "longest_validation"):
        assert content["progress"].pop(name) > 0
    state.write_text(json.dumps(content))
    assert load_progress(checkpoint_path(run, 6)).elapsed == 0


def test_another_limit_is_another_configuration_if_the_rates_depend_on_it(experiment, tmp_path, capsys):
    few = ("training.max_minutes=1e-6", "training.schedule=linear")
    run = train_tiny(experiment, tmp_path / "run", *few)
    assert saved_steps(run) == [1]
    arguments = (experiment, f"run_dir={run}", *few, "training.max_minutes=5")
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2 and "(this schedule depends on training.max_minutes)" in error


def test_a_run_whose_rates_do_not_depend_on_the_limit_goes_on_with_a_later_one(experiment, trained, tmp_path, capsys):
    run = train_tiny(experiment, tmp_path / "run", "training.max_minutes=1e-6")
    capsys.readouterr()
    train_tiny(experiment, run, "training.max_minutes=1e-6")
    assert "already trained, 1 update; to continue, raise training.max_minutes" in capsys.readouterr().out
    train_tiny(experiment, run)
    assert_same_weights(weights_at(run, 12), weights_at(trained, 12))
