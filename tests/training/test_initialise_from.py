"""A run that begins with the weights of another."""

import re
import shutil

import pytest
import torch
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import assert_same_weights, status_and_error, train_tiny, weights_at
from safetensors.torch import load_file

from transformer_mt import average, prepare, train
from transformer_mt.training.checkpoint import checkpoint_path, saved_steps

STILL = ("training.max_steps=1", "training.peak_lr=1e-30")  # one update that moves next to nothing


def first_weights(experiment, run_dir, path, *overrides):
    return weights_at(train_tiny(experiment, run_dir, *STILL, f"training.initialise_from={path}", *overrides), 1)


@pytest.mark.parametrize("name", ["model", "checkpoints/step-00000010", *thorough("checkpoints/best")])
def test_a_run_begins_with_the_weights_of_another(run, experiment, tmp_path, name):
    average.main([str(run), "checkpoints=2"])
    found = first_weights(experiment, tmp_path / "new", run / name)
    expected = load_file(run / name / "model.safetensors")
    assert found.keys() == expected.keys()
    for key, weight in found.items():
        torch.testing.assert_close(weight, expected[key], rtol=0, atol=1e-20)


@pytest.mark.thorough
def test_a_run_that_goes_on_does_not_begin_again(run, experiment, tmp_path):
    overrides = [f"training.initialise_from={run}/checkpoints/best"]
    unbroken = train_tiny(experiment, tmp_path / "unbroken", *overrides)
    train_tiny(experiment, tmp_path / "new", *overrides, "training.max_steps=5")
    shutil.rmtree(run)  # nor is the other run needed any more
    train_tiny(experiment, tmp_path / "new", *overrides)
    assert_same_weights(weights_at(tmp_path / "new", 12), weights_at(unbroken, 12))


@pytest.mark.parametrize(("name", "holder"), [("model", "model"), *thorough_rows(("checkpoints/best", "."))])
def test_another_vocabulary_is_explained(run, experiment, tmp_path, capsys, name, holder):
    average.main([str(run)])
    arguments = [experiment, f"data_dir={tmp_path / 'other'}", "tokenizer.vocab_size=450"]
    assert prepare.main([str(argument) for argument in arguments]) == 0
    arguments += [f"run_dir={tmp_path / 'new'}", f"training.initialise_from={run / name}"]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert f"{run / name} was trained with another tokenizer" in error and "training.initialise_from" in error
    assert error.endswith(f"into another data_dir: tokenizer.from={run / holder}\n")
    # What the error advises is what helps.
    helps = [str(experiment), f"data_dir={tmp_path / 'third'}", f"tokenizer.from={run / holder}"]
    assert prepare.main(helps) == 0
    found = first_weights(experiment, tmp_path / "new", run / name, *helps[1:])
    assert found.keys() == load_file(run / name / "model.safetensors").keys()


@pytest.mark.parametrize("name", [*thorough("model"), "checkpoints/best"])
@pytest.mark.parametrize(
    ("override", "shapes"),
    [
        ("model.d_model=32", r"\(16.*\) in this file and \(32.*\)"),
        ("model.encoder_layers=3", r"none in this file and \(16.*\)"),
        ("model.output_bias=true", r"none in this file and \(\d+,\)"),
    ],
)
def test_another_shape_is_explained(run, experiment, tmp_path, capsys, name, override, shapes):
    average.main([str(run)])
    arguments = [experiment, f"run_dir={tmp_path / 'new'}", f"training.initialise_from={run / name}", override]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert re.search(rf"the shape of \S+ is {shapes} in the model", error), error
    assert not saved_steps(tmp_path / "new")


@pytest.mark.parametrize("name", [".", "checkpoints", "tokenizer.model", "nowhere"])
def test_what_is_neither_model_nor_checkpoint_is_named(run, experiment, tmp_path, capsys, name):
    arguments = [experiment, f"run_dir={tmp_path / 'new'}", f"training.initialise_from={run / name}"]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert f"training.initialise_from={run / name} is neither a model directory" in error
    assert error.endswith(f"; name {run / 'checkpoints' / 'best'}\n") == (name == ".")


def test_the_model_of_a_run_is_offered_in_its_place(run, experiment, tmp_path, capsys):
    average.main([str(run)])
    arguments = [experiment, f"run_dir={tmp_path / 'new'}", f"training.initialise_from={run}"]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert error.endswith(f"; name {run / 'model'}\n")


def test_a_damaged_checkpoint_is_refused(run, experiment, tmp_path, capsys):
    file = checkpoint_path(run, 12) / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1  # a number is another, and the file still one that can be read
    file.write_bytes(content)
    arguments = [experiment, f"run_dir={tmp_path / 'new'}", f"training.initialise_from={checkpoint_path(run, 12)}"]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert "step-00000012 is damaged" in error
