import json
import os
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tiny import prepared_experiment, train_tiny

from transformer_mt import train as train_stage
from transformer_mt.config import load_config
from transformer_mt.data.batching import Batch, Position, epoch_batches, training_batches
from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.device import choose_device
from transformer_mt.models.transformer import Transformer
from transformer_mt.training import loop
from transformer_mt.training.checkpoint import Progress, checkpoint_path, saved_steps
from transformer_mt.training.optimization import build_optimizer
from transformer_mt.training.validation import ValidationScores


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    return prepared_experiment(tmp_path_factory.mktemp("experiment"))


@pytest.fixture(scope="module")
def unbroken(experiment, tmp_path_factory):
    return train_tiny(experiment, tmp_path_factory.mktemp("unbroken"))


def weights_at(run_dir, step):
    return load_file(checkpoint_path(run_dir, step) / "model.safetensors")


def assert_same_weights(one, other):
    assert one.keys() == other.keys()
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name


def test_one_update_over_micro_batches_is_one_over_their_union(experiment):
    config = load_config(experiment, ["model.dropout=0.0"])
    corpus = EncodedCorpus.load(experiment.parent / "data" / "train")
    device = choose_device("cpu", "fp32")
    pairs = epoch_batches(corpus, 400, seed=1, epoch=0)[:3]
    parts = [batch for batch, _ in zip(training_batches(corpus, 400, 1, Position()), pairs, strict=False)]
    parts = [batch for batch, _ in parts]
    sizes = {batch.num_labels for batch in parts}
    assert len(sizes) > 1, "of unequal sizes, so that a mean of means would show"

    def updated(batches):
        torch.manual_seed(3)
        model = Transformer(config.model, 500, 500)
        # Plain steps along the gradient: Adam would hide its scale.
        loop.one_update(model, torch.optim.SGD(model.parameters(), lr=1.0), batches, config.training, device)
        return dict(model.named_parameters())

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
    apart, together = updated(parts), updated([union])
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
        records = [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]
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

    arguments = [str(experiment), f"run_dir={tmp_path / 'run'}"]
    with monkeypatch.context() as patch:
        patch.setattr(loop, "one_update", update_during_which_a_signal_comes)
        assert train_stage.main(arguments) == status
    assert len(updates) == 5
    assert saved_steps(tmp_path / "run")[-1] == 5
    assert f"-m transformer_mt.train {arguments[0]} {arguments[1]}" in capsys.readouterr().out
    assert signal.getsignal(signum) in (signal.default_int_handler, signal.SIG_DFL)
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
    validations = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines() if "valid_nll" in line]
    best = min(validations, key=lambda record: record["valid_nll"])["step"]
    assert [record["step"] for record in validations if record["best"]][-1] == best
    assert (run / "checkpoints" / "best").resolve() == checkpoint_path(run, best)
    assert saved_steps(run) == sorted({best, 36, 38, 40})


def test_training_lowers_the_loss(experiment, tmp_path):
    run = train_tiny(experiment, tmp_path / "run", "training.max_steps=60")
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    course = [record["perplexity"] for record in records if "perplexity" in record]
    assert course[-1] < 0.5 * course[0]


def test_early_stopping_counts_validations_without_a_better_metric(experiment):
    settings = load_config(experiment, ["training.patience=2", "training.metric=bleu"]).training
    progress = Progress()
    course = [(4, 10.0), (8, 12.0), (12, 12.0), (16, 11.0)]
    for step, bleu in course:
        assert not loop.is_trained(progress, settings.model_copy(update={"max_steps": 100}))
        scores = ValidationScores(nll=1.0, bleu=bleu, seconds=0.0)
        progress = loop.compare_with_best(replace(progress, step=step), scores, settings)
    assert progress.best_step == 8
    assert progress.stopped_early
    assert loop.is_trained(progress, settings.model_copy(update={"max_steps": 100}))


def test_a_run_that_stopped_early_is_not_taken_up(experiment, tmp_path, capsys):
    # With a vanishing rate nothing gets better after the first validation.
    arguments = ("training.max_steps=40", "training.patience=2", "training.metric=nll", "training.peak_lr=1e-30")
    run = train_tiny(experiment, tmp_path / "run", *arguments)
    assert saved_steps(run)[-1] == 12
    capsys.readouterr()
    train_tiny(experiment, run, *arguments)
    assert "already trained, 12 updates" in capsys.readouterr().out


def test_one_pass_of_the_optimizer_uses_the_scheduled_rate(experiment):
    model = torch.nn.Linear(2, 2)
    settings = load_config(experiment).training
    optimizer = build_optimizer(model, settings)
    loop.set_learning_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25]
