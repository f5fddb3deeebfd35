"""The course of a run: seeded, resumable at any instant, kept and stopped as the settings say."""

import json
import math
import os
import re
import shutil
import signal
import threading
from dataclasses import replace
from itertools import islice

import pytest
import torch
from helpers.processes import PATIENCE
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import assert_same_weights, log_records, train_tiny, weights_at

from transformer_mt import average
from transformer_mt import train as train_stage
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.settings.reading import load_config
from transformer_mt.training import loop
from transformer_mt.training.optimization import learning_rate
from transformer_mt.training.progress import Progress, compare_with_best, is_trained
from transformer_mt.training.run import checkpoint, running
from transformer_mt.training.run.checkpoint import checkpoint_path, saved_steps
from transformer_mt.training.run.validation import ValidationScores


def untimed(run_dir):
    timed = {"seconds", "tokens_per_second", "valid_seconds", "memory_megabytes"}
    return [{key: value for key, value in record.items() if key not in timed} for record in log_records(run_dir)]


def test_same_seed_same_weights_and_another_seed_others(experiment, trained, tmp_path):
    again = train_tiny(experiment, tmp_path / "again")
    assert_same_weights(weights_at(again, 12), weights_at(trained, 12))
    rarely = ("training.validate_every=12", "training.save_every=12")
    other = weights_at(train_tiny(experiment, tmp_path / "other", "training.seed=2", *rarely), 12)
    assert any(not torch.equal(weight, other[name]) for name, weight in weights_at(trained, 12).items())


@pytest.mark.thorough
def test_the_seed_alone_draws_the_first_weights(experiment, tmp_path):
    def first_weights(name, seed):
        torch.manual_seed(len(name))  # whatever the process has drawn before
        arguments = ["training.max_steps=1", "training.peak_lr=1e-30", f"training.seed={seed}"]
        return weights_at(train_tiny(experiment, tmp_path / name, *arguments), 1)

    one = first_weights("one", 1)
    assert_same_weights(one, first_weights("again", 1))
    other = first_weights("other", 2)
    assert any(not torch.allclose(weight, one[name], atol=1e-3) for name, weight in other.items())


def untimed_files(run_dir, step):
    """The bytes of a checkpoint's files, but without seconds, which are in state.json and decide its checksum."""
    path = checkpoint_path(run_dir, step)
    content = {file.name: file.read_text() for file in (path / "state.json", path / "SHA256SUMS")}
    weights = {file.name: file.read_bytes() for file in path.iterdir() if file.name not in content}
    state = re.sub(r'("(seconds|elapsed|longest_validation)": )[0-9.e-]+', r"\1", content["state.json"])
    return weights | {"state": state, "sums": re.sub(".*state.json", "", content["SHA256SUMS"])}


@pytest.mark.parametrize("stop", [*thorough(1), 5, *thorough(11)])
def test_stopped_and_taken_up_is_unbroken_byte_for_byte(experiment, trained, tmp_path, stop):
    train_tiny(experiment, tmp_path / "run", f"training.max_steps={stop}")
    run = train_tiny(experiment, tmp_path / "run")
    assert len(untimed_files(run, 12)) == 4
    for step in {*saved_steps(run), *saved_steps(trained)} - {stop}:
        assert untimed_files(run, step) == untimed_files(trained, step)


def test_the_model_of_a_resumed_run_is_that_of_the_unbroken_one_byte_for_byte(experiment, tmp_path):
    models = []
    for ends in ([4], [2, 4]):
        for end in ends:
            run = train_tiny(experiment, tmp_path / "run", f"training.max_steps={end}", "training.save_every=2")
        assert average.main([str(run)]) == 0
        models.append({path.name: path.read_bytes() for path in (run / "model").iterdir()})
        shutil.rmtree(run)
    assert {"model.safetensors", "SHA256SUMS"} < {*models[0]}
    assert models[0] == models[1]


@pytest.mark.thorough
def test_taken_up_from_an_earlier_checkpoint_the_log_is_that_of_the_unbroken_run(experiment, trained, tmp_path):
    run = train_tiny(experiment, tmp_path / "run")
    for step in saved_steps(run)[-2:]:
        os.rename(checkpoint_path(run, step), tmp_path / f"lost-{step}")
    with (run / "log.jsonl").open("a") as log:
        log.write('{"step": 13, "lo')  # cut off by the crash
    train_tiny(experiment, run)
    assert untimed(run) == untimed(trained)


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), *thorough_rows((signal.SIGTERM, 143))])
def test_signal_finishes_the_update_saves_and_says_how_to_go_on(
    experiment, trained, tmp_path, monkeypatch, capsys, signum, status
):
    real_update, updates = loop.one_update, []

    def update_during_which_a_signal_comes(*arguments):
        updates.append(1)
        if len(updates) == 5:
            os.kill(os.getpid(), signum)
        return real_update(*arguments)

    arguments, handler = [str(experiment), f"run_dir={tmp_path / 'run'}"], signal.getsignal(signum)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "one_update", update_during_which_a_signal_comes)
        assert train_stage.main(arguments) == status
    assert len(updates) == 5
    assert saved_steps(tmp_path / "run")[-1] == 5
    assert f"-m transformer_mt.train {arguments[0]} {arguments[1]}" in capsys.readouterr().out
    assert signal.getsignal(signum) == handler
    assert train_stage.main(arguments) == 0
    assert_same_weights(weights_at(tmp_path / "run", 12), weights_at(trained, 12))


@pytest.mark.parametrize("epoch", thorough(0, 1))
def test_a_signal_while_an_order_is_made_does_not_wait_for_it(experiment, tmp_path, monkeypatch, capsys, epoch):
    """It ends only afterwards here. What was done before is saved, and the run goes on as if it had not been broken."""
    rarely = ("training.save_every=100", "training.validate_every=100")
    settings = ("training.max_steps=16", "training.tokens_per_update=900", "training.log_every=1", *rarely)
    arguments = [str(experiment), f"run_dir={tmp_path / 'run'}", *settings]
    make, stopped, waited_for = Loader.order, threading.Event(), []

    def order_that_ends_afterwards(self, number, stage):
        if number == epoch:
            os.kill(os.getpid(), signal.SIGINT)
            waited_for.extend([] if stopped.wait(PATIENCE) else [number])
        return make(self, number, stage)

    with monkeypatch.context() as patch:
        patch.setattr(Loader, "order", order_that_ends_afterwards)
        assert train_stage.main(arguments) == 128 + signal.SIGINT
    stopped.set()
    assert not waited_for
    assert f"-m transformer_mt.train {arguments[0]} {arguments[1]}" in capsys.readouterr().out
    assert saved_steps(tmp_path / "run") == ([log_records(tmp_path / "run")[-1]["step"]] if epoch else [])
    assert train_stage.main(arguments) == 0
    unbroken = train_tiny(experiment, tmp_path / "unbroken", *settings)
    assert_same_weights(weights_at(tmp_path / "run", 16), weights_at(unbroken, 16))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("stop", "settings"),
    [
        *thorough_rows(
            (4, ("training.save_every=100", "training.keep_last=1", "averaging.checkpoints=1")),
            (12, ()),
        ),
        (12, ("training.max_steps=40", "training.patience=2", "training.peak_lr=1e-30", "training.save_every=8")),
    ],
)
def test_a_validation_that_a_signal_or_a_kill_prevented_is_made_up_for(
    experiment, tmp_path, monkeypatch, stop, settings
):
    real_update, real_validate, killed = loop.one_update, train_stage.validate, []

    def interrupted(*arguments):
        made = real_update(*arguments)
        if made.step == stop:
            os.kill(os.getpid(), signal.SIGTERM)
        return made

    def killed_once(*arguments):
        killed.append(real_validate(*arguments))
        if len(killed) == 1:
            raise KeyboardInterrupt
        return killed[-1]

    broken = (str(experiment), f"run_dir={tmp_path / 'broken'}", "training.metric=nll", *settings)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "one_update", interrupted)
        assert train_stage.main(broken) == 143
    assert stop not in [record["step"] for record in log_records(tmp_path / "broken") if "valid_nll" in record]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(train_stage, "validate", killed_once)
        train_stage.main(broken)
    assert train_stage.main(broken) == 0
    unbroken = train_tiny(experiment, tmp_path / "unbroken", "training.metric=nll", *settings)
    assert untimed(tmp_path / "broken") == untimed(unbroken)
    assert saved_steps(tmp_path / "broken") == saved_steps(unbroken)
    assert os.readlink(tmp_path / "broken/checkpoints/best") == os.readlink(unbroken / "checkpoints/best")
    assert_same_weights(weights_at(tmp_path / "broken", 12), weights_at(unbroken, 12))


@pytest.mark.thorough
def test_a_validation_killed_after_its_record_is_recorded_once(experiment, tmp_path, monkeypatch):
    arguments, real_update = [str(experiment), f"run_dir={tmp_path}", "training.max_steps=4"], loop.one_update

    def interrupted(*arguments):
        made = real_update(*arguments)
        if made.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return made

    def killed(self, progress, at_once=False):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "one_update", interrupted)
        assert train_stage.main(arguments) == 143
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(running.Run, "save", killed)
        train_stage.main(arguments)
    assert train_stage.main(arguments) == 0
    assert [record["step"] for record in log_records(tmp_path)] == [2, 4, 4]


@pytest.mark.thorough
def test_second_signal_stops_at_once_and_loses_nothing(experiment, trained, tmp_path, monkeypatch):
    real_update, updates = loop.one_update, []

    def update_during_which_two_signals_come(*arguments):
        updates.append(1)
        if len(updates) == 5:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return real_update(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "one_update", update_during_which_two_signals_come)
        train_tiny(experiment, tmp_path / "run")
    assert saved_steps(tmp_path / "run")[-1] == 4
    run = train_tiny(experiment, tmp_path / "run")
    assert_same_weights(weights_at(run, 12), weights_at(trained, 12))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("metric", "keep_best", "keep_last"), [("nll", 3, 2), *thorough_rows(("chrf", 1, 3), ("bleu", 2, 1))]
)
def test_the_best_few_and_the_last_few_checkpoints_stay(experiment, tmp_path, metric, keep_best, keep_last):
    # The rate is so high that it gets worse now and then; validations are not when checkpoints are due.
    settings = ("training.max_steps=24", "training.save_every=5", "training.validate_every=2", "training.peak_lr=0.05")
    kept = (f"training.keep_best={keep_best}", f"training.keep_last={keep_last}", "averaging.checkpoints=1")
    run = train_tiny(experiment, tmp_path / "run", *settings, *kept, f"training.metric={metric}")
    validations = [record for record in log_records(run) if "valid_nll" in record]
    assert [record["step"] for record in validations] == list(range(2, 25, 2))

    def goodness(record):
        by_likelihood = metric == "nll" or (metric == "bleu" and record["valid_bleu"] < 1)
        return -record["valid_nll"] if by_likelihood else record[f"valid_{metric}"]

    best = sorted(validations, key=lambda record: (-goodness(record), record["step"]))[:keep_best]
    last = [5, 10, 15, 20, 24][-keep_last:]
    assert saved_steps(run) == sorted({*last, *(record["step"] for record in best)})
    assert (run / "checkpoints" / "best").resolve() == checkpoint_path(run, best[0]["step"])
    assert [record["step"] for record in validations if record["best"]][-1] == best[0]["step"]
    progress = checkpoint.load_progress(checkpoint_path(run, 24))
    assert progress.best_steps == [record["step"] for record in best]


@pytest.mark.thorough
def test_the_best_and_the_last_are_saved_besides_the_schedule_and_the_last_is_validated(experiment, tmp_path):
    # With a vanishing rate the first validation stays the best.
    arguments = [
        "training.max_steps=7",
        "training.validate_every=3",
        "training.save_every=100",
        "training.peak_lr=1e-30",
    ]
    run = train_tiny(experiment, tmp_path / "run", *arguments, "training.metric=nll")
    validations = {record["step"]: record["best"] for record in log_records(run) if "valid_nll" in record}
    assert validations == {3: True, 6: False, 7: False}
    assert [record["step"] for record in log_records(run) if "loss" in record] == [2, 4, 6, 7]
    assert saved_steps(run) == [3, 7]
    assert (run / "checkpoints" / "best").resolve() == checkpoint_path(run, 3)


def test_training_lowers_the_loss(experiment, tmp_path):
    settings = ("training.max_steps=30", "training.peak_lr=0.02", "training.validate_every=30")
    run = train_tiny(experiment, tmp_path / "run", *settings, "training.save_every=30")
    course = [record["perplexity"] for record in log_records(run) if "perplexity" in record]
    assert course[-1] < 0.5 * course[0]


@pytest.mark.parametrize("metric", ["bleu", "chrf", "nll"])
def test_early_stopping_counts_validations_since_the_last_better_metric(experiment, metric):
    settings = load_config(experiment, ["training.patience=2", f"training.metric={metric}"]).training
    settings = settings.model_copy(update={"max_steps": 100})
    progress, sign = Progress(), -1 if metric == "nll" else 1
    course = [(4, 10.0), (8, 9.0), (12, 12.0), (16, 12.0), (20, 11.0)]
    for step, value in course:
        assert not is_trained(progress, settings)
        # The other metrics get worse with each.
        scores = ValidationScores({"nll": step, "bleu": -step, "chrf": -step} | {metric: sign * value}, seconds=0.0)
        progress = compare_with_best(replace(progress, step=step), scores.goodness(metric), settings)
    assert progress.best == ((12.0, 12),)
    assert is_trained(progress, settings)


def test_the_best_few_are_in_order_and_of_equals_the_first_is_better(experiment):
    settings = load_config(experiment, ["training.keep_best=3"]).training
    progress, ranks = Progress(), []
    for step, value in enumerate([5.0, 7.0, 6.0, 7.0, 1.0, 9.0, 9.0, 7.5], start=1):
        progress = compare_with_best(replace(progress, step=step), value, settings)
        ranks.append(progress.best_steps)
    assert ranks[:4] == [[1], [2, 1], [2, 3, 1], [2, 4, 3]]
    assert ranks[4:] == [[2, 4, 3], [6, 2, 4], [6, 7, 2], [6, 7, 8]]
    assert progress.validations_since_best == 2, "a second best is no better best"


def test_while_bleu_is_below_one_the_likelihood_decides_what_is_best(experiment):
    settings, progress, ranks = load_config(experiment, ["training.keep_best=2"]).training, Progress(), []
    for step, (nll, bleu) in enumerate([(9.0, 0.9), (8.0, 0.1), (8.5, 0.8), (8.7, 1.0), (5.0, 0.9), (8.8, 2.0)], 1):
        scores = ValidationScores({"nll": nll, "bleu": bleu, "chrf": 5.0}, seconds=0.0)
        progress = compare_with_best(replace(progress, step=step), scores.goodness("bleu"), settings)
        ranks.append(progress.best_steps)
    assert ranks == [[1], [2, 1], [2, 3], [4, 2], [4, 5], [6, 4]]


@pytest.mark.thorough
@pytest.mark.parametrize("metric", [*thorough("bleu", "chrf"), "nll"])
def test_a_run_that_stopped_early_is_not_taken_up(experiment, tmp_path, capsys, metric):
    # With a vanishing rate nothing gets better after the first validation.
    still = ("training.max_steps=40", "training.patience=2", "training.peak_lr=1e-30", "training.log_every=5")
    arguments = (*still, f"training.metric={metric}")
    run = train_tiny(experiment, tmp_path / "run", *arguments)
    assert saved_steps(run)[-1] == 12
    capsys.readouterr()
    train_tiny(experiment, run, *arguments)
    assert log_records(run)[-1]["step"] == 12 and "loss" in log_records(run)[-1]
    assert "already trained, 12 updates" in capsys.readouterr().out


@pytest.mark.thorough
def test_each_update_has_the_rate_of_its_step_and_counts_its_tokens(experiment, tmp_path):
    run = train_tiny(experiment, tmp_path / "run", "training.log_every=1", "training.max_steps=6")
    settings = load_config(run / "config.yaml").training
    corpus = EncodedCorpus.load(experiment.parent / "data" / "train")
    loader = Loader(corpus, settings.tokens_per_batch, settings.tokens_per_update, settings.seed)
    updates = [update for update, _ in islice(loader.updates(Position()), 6)]
    assert len({len(update) for update in updates}) > 1
    tokens, seconds = 0, 0.0
    for record in log_records(run):
        if "tokens" not in record:
            continue
        assert record["tokens_per_second"] > 0
        assert record["seconds"] > seconds
        seconds = record["seconds"]
        tokens += sum(loader.batch(pairs, 1, 0).num_labels for pairs in updates[record["step"] - 1])
        assert record["tokens"] == tokens
        assert record["epoch"] == 0
        assert record["learning_rate"] == learning_rate(record["step"], settings)
        # From 1, and up to the peak at the last update of the warm-up.
        assert record["learning_rate"] == pytest.approx(0.005 * min(record["step"] / 4, (4 / record["step"]) ** 0.5))
    assert json.loads((checkpoint_path(run, 6) / "state.json").read_text())["progress"]["tokens"] == tokens > 0


@pytest.mark.thorough
@pytest.mark.parametrize("max_steps", [8, *thorough(9)])
def test_killed_between_the_best_checkpoint_and_its_link_the_link_is_mended(
    experiment, tmp_path, monkeypatch, max_steps
):
    real_link = checkpoint.point_best_at

    def killed_at_8(run_dir, step):
        if step == 8:
            raise KeyboardInterrupt
        real_link(run_dir, step)

    arguments = ("training.max_steps=8", "training.metric=nll", "training.keep_last=2")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(running, "point_best_at", killed_at_8)
        train_tiny(experiment, tmp_path / "run", *arguments)
    best = tmp_path / "run" / "checkpoints" / "best"
    assert best.resolve() == checkpoint_path(tmp_path / "run", 4)
    train_tiny(experiment, tmp_path / "run", *arguments, f"training.max_steps={max_steps}", "training.validate_every=8")
    progress = json.loads((checkpoint_path(tmp_path / "run", max_steps) / "state.json").read_text())["progress"]
    assert best.resolve() == checkpoint_path(tmp_path / "run", progress["best"][0][1])
    assert best.resolve().is_dir()


@pytest.mark.parametrize(("metric", "number"), [("nll", 9.0), ("bleu", 0.0)])
def test_a_metric_that_is_no_number_is_the_worst(experiment, metric, number):
    settings = load_config(experiment, [f"training.metric={metric}"]).training
    progress = Progress()
    for step, value in [(4, math.nan), (8, number), (12, math.nan)]:
        scores = ValidationScores({"nll": 1.0, "bleu": 1.0, "chrf": 1.0} | {metric: value}, seconds=0.0)
        progress = compare_with_best(replace(progress, step=step), scores.goodness(metric), settings)
        assert progress.best_steps == [min(step, 8)]
