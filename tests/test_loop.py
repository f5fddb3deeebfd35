import json
import os
import signal
from dataclasses import replace
from itertools import islice

import pytest
import torch
from safetensors.torch import load_file
from tiny import prepared_experiment, train_tiny

from transformer_mt import train as train_stage
from transformer_mt.config import load_config
from transformer_mt.data.batching import Batch, Position, training_batches
from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.device import choose_device
from transformer_mt.models.transformer import Transformer
from transformer_mt.training import loop
from transformer_mt.training.checkpoint import Progress, checkpoint_path, saved_steps
from transformer_mt.training.optimization import learning_rate
from transformer_mt.training.validation import ValidationScores
from transformer_mt.vocabulary import PAD


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    return prepared_experiment(tmp_path_factory.mktemp("experiment"))


@pytest.fixture(scope="module")
def unbroken(experiment, tmp_path_factory):
    return train_tiny(experiment, tmp_path_factory.mktemp("unbroken"))


def weights_at(run_dir, step):
    return load_file(checkpoint_path(run_dir, step) / "model.safetensors")


def log_records(run_dir):
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


def assert_same_weights(one, other):
    assert one.keys() == other.keys()
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name


def test_one_update_over_micro_batches_is_one_over_their_union(experiment):
    config = load_config(experiment, ["model.dropout=0.0"])
    corpus = EncodedCorpus.load(experiment.parent / "data" / "train")
    device = choose_device("cpu", "fp32")
    parts = [batch for batch, _ in islice(training_batches(corpus, 400, 2, Position()), 3)]
    sizes = {batch.num_labels for batch in parts}
    assert len(sizes) > 1, "of unequal sizes, so that a mean of means would show"

    def updated(batches):
        torch.manual_seed(3)
        model = Transformer(config.model, 500, 500)
        # Plain steps along the gradient: Adam would hide its scale.
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        return dict(model.named_parameters()), loop.one_update(model, optimizer, batches, config.training, device)

    def padded(tensors):
        width = max(tensor.shape[1] for tensor in tensors)
        return torch.cat([torch.nn.functional.pad(tensor, (0, width - tensor.shape[1])) for tensor in tensors])

    union = Batch(
        padded([batch.source_BS for batch in parts]),
        padded([batch.decoder_input_BT for batch in parts]),
        padded([batch.labels_BT for batch in parts]),
        torch.cat([batch.pairs_B for batch in parts]),
        sum(batch.num_labels for batch in parts),
    )
    (apart, update), (together, of_union) = updated(parts), updated([union])
    assert update.num_labels == of_union.num_labels == sum((batch.labels_BT != PAD).sum() for batch in parts)
    assert update.num_positions == sum(batch.labels_BT.numel() for batch in parts)
    assert update.num_positions != sum(batch.source_BS.numel() for batch in parts), "or sources would pass for them"
    for name in ("smoothed", "nll", "gradient_norm"):
        torch.testing.assert_close(getattr(update, name), getattr(of_union, name), rtol=1e-5, atol=0)
    for name, weight in apart.items():
        torch.testing.assert_close(weight, together[name], rtol=1e-4, atol=1e-5)


def test_gradient_is_clipped_to_the_norm(experiment):
    config = load_config(experiment, ["training.clip_norm=0.01"])
    corpus = EncodedCorpus.load(experiment.parent / "data" / "train")
    batch, _ = next(training_batches(corpus, 400, 1, Position()))
    model = Transformer(config.model, 500, 500)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    loop.one_update(
        model, torch.optim.SGD(model.parameters(), lr=1.0), [batch], config.training, choose_device("cpu", "fp32")
    )
    moved = torch.cat([(old - new).flatten() for old, new in zip(before, model.parameters(), strict=True)])
    torch.testing.assert_close(moved.norm().item(), 0.01, rtol=1e-3, atol=0)


def test_same_seed_same_weights_and_another_seed_others(experiment, unbroken, tmp_path):
    again = train_tiny(experiment, tmp_path / "again")
    assert_same_weights(weights_at(again, 12), weights_at(unbroken, 12))
    other = weights_at(train_tiny(experiment, tmp_path / "other", "training.seed=2"), 12)
    assert any(not torch.equal(weight, other[name]) for name, weight in weights_at(unbroken, 12).items())


def test_the_seed_alone_draws_the_first_weights(experiment, tmp_path):
    def first_weights(name, seed):
        torch.manual_seed(len(name))  # whatever the process has drawn before
        arguments = ["training.max_steps=1", "training.peak_lr=1e-30", f"training.seed={seed}"]
        return weights_at(train_tiny(experiment, tmp_path / name, *arguments), 1)

    one = first_weights("one", 1)
    assert_same_weights(one, first_weights("again", 1))
    other = first_weights("other", 2)
    assert any(not torch.allclose(weight, one[name], atol=1e-3) for name, weight in other.items())


@pytest.mark.parametrize("stop", [1, 5, 11])
def test_stopped_and_taken_up_is_unbroken_bit_for_bit(experiment, unbroken, tmp_path, stop):
    train_tiny(experiment, tmp_path / "run", f"training.max_steps={stop}")
    run = train_tiny(experiment, tmp_path / "run")
    assert_same_weights(weights_at(run, 12), weights_at(unbroken, 12))


def test_taken_up_from_an_earlier_checkpoint_the_log_is_that_of_the_unbroken_run(experiment, unbroken, tmp_path):
    run = train_tiny(experiment, tmp_path / "run")
    for step in saved_steps(run)[-2:]:
        os.rename(checkpoint_path(run, step), tmp_path / f"lost-{step}")
    with (run / "log.jsonl").open("a") as log:
        log.write('{"step": 13, "lo')  # cut off by the crash
    train_tiny(experiment, run)

    def numbers(run_dir):
        records = log_records(run_dir)
        timed = {"seconds", "tokens_per_second", "valid_seconds"}
        return [{key: value for key, value in record.items() if key not in timed} for record in records]

    assert numbers(run) == numbers(unbroken)


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_finishes_the_update_saves_and_says_how_to_go_on(
    experiment, unbroken, tmp_path, monkeypatch, capsys, signum, status
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
    assert_same_weights(weights_at(tmp_path / "run", 12), weights_at(unbroken, 12))


def test_second_signal_stops_at_once_and_loses_nothing(experiment, unbroken, tmp_path, monkeypatch):
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
    assert_same_weights(weights_at(run, 12), weights_at(unbroken, 12))


def test_best_and_last_checkpoints_stay(experiment, tmp_path):
    run = train_tiny(experiment, tmp_path / "run", "training.max_steps=40", "training.metric=nll")
    validations = [record for record in log_records(run) if "valid_nll" in record]
    best = min(validations, key=lambda record: record["valid_nll"])["step"]
    assert [record["step"] for record in validations if record["best"]][-1] == best
    assert (run / "checkpoints" / "best").resolve() == checkpoint_path(run, best)
    assert saved_steps(run) == sorted({best, 36, 38, 40})


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
    assert saved_steps(run) == [3, 7]
    assert (run / "checkpoints" / "best").resolve() == checkpoint_path(run, 3)


def test_training_lowers_the_loss(experiment, tmp_path):
    run = train_tiny(experiment, tmp_path / "run", "training.max_steps=60")
    course = [record["perplexity"] for record in log_records(run) if "perplexity" in record]
    assert course[-1] < 0.5 * course[0]


def test_early_stopping_counts_validations_since_the_last_better_metric(experiment):
    settings = load_config(experiment, ["training.patience=2", "training.metric=bleu"]).training
    settings = settings.model_copy(update={"max_steps": 100})
    progress = Progress()
    course = [(4, 10.0), (8, 9.0), (12, 12.0), (16, 12.0), (20, 11.0)]
    for step, bleu in course:
        assert not loop.is_trained(progress, settings)
        scores = ValidationScores(nll=1.0, bleu=bleu, seconds=0.0)
        progress = loop.compare_with_best(replace(progress, step=step), scores, settings)
    assert (progress.best_step, progress.best_metric) == (12, 12.0)
    assert loop.is_trained(progress, settings)


def test_a_run_that_stopped_early_is_not_taken_up(experiment, tmp_path, capsys):
    # With a vanishing rate nothing gets better after the first validation.
    arguments = ("training.max_steps=40", "training.patience=2", "training.metric=nll", "training.peak_lr=1e-30")
    run = train_tiny(experiment, tmp_path / "run", *arguments)
    assert saved_steps(run)[-1] == 12
    capsys.readouterr()
    train_tiny(experiment, run, *arguments)
    assert "already trained, 12 updates" in capsys.readouterr().out


def test_each_update_has_the_rate_of_its_step_and_counts_its_tokens(experiment, tmp_path):
    run = train_tiny(experiment, tmp_path / "run", "training.log_every=1", "training.max_steps=6")
    settings = load_config(run / "config.yaml").training
    taken = training_batches(EncodedCorpus.load(experiment.parent / "data" / "train"), 400, settings.seed, Position())
    tokens, seconds = 0, 0.0
    for record in log_records(run):
        if "tokens" not in record:
            continue
        assert record["tokens_per_second"] > 0
        assert record["seconds"] > seconds
        seconds = record["seconds"]
        (first, _), (second, position) = next(taken), next(taken)
        tokens += first.num_labels + second.num_labels
        assert record["tokens"] == tokens
        assert record["epoch"] == position.epoch
        assert record["learning_rate"] == learning_rate(record["step"], settings)
        # From 1, and up to the peak at the last update of the warm-up.
        assert record["learning_rate"] == pytest.approx(0.005 * min(record["step"] / 4, (4 / record["step"]) ** 0.5))
    assert json.loads((checkpoint_path(run, 6) / "state.json").read_text())["progress"]["tokens"] == tokens > 0


def test_the_rate_reaches_every_weight():
    layers = [torch.nn.Linear(2, 2) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": layer.parameters(), "lr": 1.0} for layer in layers])
    loop.set_learning_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


@pytest.mark.parametrize("max_steps", [8, 9])
def test_killed_between_the_best_checkpoint_and_its_link_the_link_is_mended(
    experiment, tmp_path, monkeypatch, max_steps
):
    real_link = loop.point_best_at

    def killed_at_8(run_dir, step):
        if step == 8:
            raise KeyboardInterrupt
        real_link(run_dir, step)

    arguments = ("training.max_steps=8", "training.metric=nll", "training.keep_last=2")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "point_best_at", killed_at_8)
        train_tiny(experiment, tmp_path / "run", *arguments)
    best = tmp_path / "run" / "checkpoints" / "best"
    assert best.resolve() == checkpoint_path(tmp_path / "run", 4)
    train_tiny(experiment, tmp_path / "run", *arguments, f"training.max_steps={max_steps}", "training.validate_every=8")
    progress = json.loads((checkpoint_path(tmp_path / "run", max_steps) / "state.json").read_text())["progress"]
    assert best.resolve() == checkpoint_path(tmp_path / "run", progress["best_step"])
    assert best.resolve().is_dir()


def test_a_metric_that_is_no_number_is_the_worst(experiment):
    settings = load_config(experiment, ["training.metric=nll"]).training
    progress = loop.compare_with_best(Progress(step=4), ValidationScores(float("nan"), 0.0, 0.0), settings)
    progress = loop.compare_with_best(replace(progress, step=8), ValidationScores(9.0, 0.0, 0.0), settings)
    assert progress.best_step == 8
