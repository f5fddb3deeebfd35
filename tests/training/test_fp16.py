"""Training in fp16: it learns as in fp32, the scale of the loss falls where it is too large, and runs resume."""

import shutil
from itertools import islice

import pytest
import torch
from helpers.messages import says
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import (
    assert_same_weights,
    log_records,
    new_learner,
    poisoned_checkpoint,
    renew_sums,
    status_and_error,
    train_tiny,
)
from safetensors.torch import load_file, save_file

from transformer_mt import train
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.kernels.device import choose_device
from transformer_mt.settings.reading import load_config
from transformer_mt.training.learning import BatchLoss, Learner
from transformer_mt.training.loop import one_update
from transformer_mt.training.run.checkpoint import checkpoint_path, load_progress
from transformer_mt.training.run.running import MOST_IN_A_ROW, MOST_IN_A_ROW_FP16

FP16 = ("training.precision=fp16", "training.validate_every=100", "training.valid_sentences=1")


def training_at(run_dir, step):
    return load_file(checkpoint_path(run_dir, step) / "training.safetensors")


def with_scale(run_dir, step, scale):
    """Change the scale of the loss in a checkpoint."""
    path = checkpoint_path(run_dir, step)
    tensors = training_at(run_dir, step)
    tensors["scaler.scale"] = torch.tensor(scale)
    save_file(tensors, path / "training.safetensors")
    renew_sums(path)


@pytest.mark.parametrize("optimizer", ["adam", *thorough("muon")])
def test_a_model_learns_in_fp16_as_in_fp32(optimizer, experiment, tmp_path):
    losses = []
    for precision in ("fp32", "fp16"):
        own = [f"training.precision={precision}", f"training.optimizer={optimizer}", "model.dropout=0"]
        run = train_tiny(experiment, tmp_path / precision, *FP16[1:], *own)
        losses.append([record["loss"] for record in log_records(run) if "loss" in record])
    assert losses[0] == pytest.approx(losses[1], rel=5e-3)
    assert losses[0] != losses[1]
    assert losses[1][-1] < losses[1][0] - 0.4
    assert training_at(tmp_path / "fp16", 12)["scaler._growth_tracker"] == 12
    assert not [key for key in training_at(tmp_path / "fp32", 12) if key.startswith("scaler.")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "power", "at_least", "end"),
    [("adam", 22, 1, 11), *thorough_rows(("muon", 32, MOST_IN_A_ROW + 1, 22))],
)
def test_a_scale_that_is_too_large_falls_and_a_stop_meanwhile_changes_nothing(
    optimizer, power, at_least, end, experiment, tmp_path
):
    """Also where it falls more often in a row than updates in another precision may be skipped."""
    settings = (*FP16, f"training.optimizer={optimizer}", "training.log_every=1")
    unbroken, stopped = tmp_path / "unbroken", tmp_path / "stopped"
    train_tiny(experiment, unbroken, *settings, "training.max_steps=2")
    with_scale(unbroken, 2, 2.0**power)
    shutil.copytree(unbroken, stopped, symlinks=True)
    train_tiny(experiment, unbroken, *settings, f"training.max_steps={end}")
    for step in (3, end):
        train_tiny(experiment, stopped, *settings, f"training.max_steps={step}")
    for file in ("model.safetensors", "training.safetensors"):
        assert_same_weights(*(load_file(checkpoint_path(run, end) / file) for run in (unbroken, stopped)))
    skipped = load_progress(checkpoint_path(unbroken, end)).skipped
    assert skipped == load_progress(checkpoint_path(stopped, end)).skipped
    assert at_least <= skipped < end - 2
    assert training_at(unbroken, end)["scaler.scale"] == 2.0 ** (power - skipped)
    assert sum("loss" in record for record in log_records(unbroken)) == end - skipped


@pytest.mark.thorough
def test_what_no_scale_cures_stops_the_run(experiment, tmp_path, capsys):
    poisoned = poisoned_checkpoint(experiment, tmp_path / "poisoned", 3)[-1]
    arguments = [experiment, f"run_dir={tmp_path / 'run'}", *FP16, "model.tied_embeddings=none", poisoned]
    status, error = status_and_error(train.main, *arguments, "training.max_steps=100", capsys=capsys)
    assert status == 2
    assert says(error, "updates-not-finite", f" {MOST_IN_A_ROW_FP16} updates", f" {MOST_IN_A_ROW_FP16},", "")


@pytest.mark.thorough
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_an_overflow_moves_nothing_and_halves_the_scale(optimizer, experiment):
    config = load_config(experiment, [f"training.optimizer={optimizer}", "training.clip_norm=1"])
    loader = Loader(EncodedCorpus.load(experiment.parent / "data" / "train"), 400, 0, 2)
    batches = [loader.batch(update[0], step=1, number=0) for update, _ in islice(loader.updates(Position()), 3)]
    made = new_learner(config)
    loss = BatchLoss(made.model, choose_device("cpu", "fp16"), 0.1, False).train()
    learner = Learner(loss, made.optimizer, made.average, made.settings)

    def tried(step):
        return one_update(learner, [batches[step - 1]], 0.01, step).numbers

    def state():
        kept = {name: dict(learner.optimizer.state[weight]) for name, weight in learner.model.named_parameters()}
        weights = dict(learner.model.named_parameters())
        values = {f"{name}.{key}": value for name, found in kept.items() for key, value in found.items()}
        return {name: value.detach().clone() for name, value in (weights | values).items()}

    first = tried(1)
    assert first.is_finite
    before, state_of_scaler = state(), loss.scaler.state_dict()
    assert (state_of_scaler["scale"], state_of_scaler["_growth_tracker"]) == (2.0**16, 1)
    loss.scaler.load_state_dict(state_of_scaler | {"scale": 2.0**60})
    overflow = tried(2)
    assert not overflow.is_finite and overflow.smoothed.isfinite()
    assert_same_weights(before, state())
    assert loss.scaler.get_scale() == 2.0**59

    loss.scaler.load_state_dict(state_of_scaler)
    one = tried(3)
    assert one.is_finite and one.gradient_norm < 10 * first.gradient_norm, "the norm is that without the scale"
    assert any(not torch.equal(value, before[name]) for name, value in state().items())
