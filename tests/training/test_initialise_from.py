"""A run that begins with the weights of another."""

import shutil
from typing import Literal, get_args, get_origin

import pytest
import torch
from helpers.messages import says
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import assert_same_weights, status_and_error, train_tiny, weights_at
from safetensors.torch import load_file

from transformer_mt import average, prepare, train
from transformer_mt.settings.model_settings import ConvolutionalConfig, RnnConfig, TransformerConfig
from transformer_mt.settings.reading import other_meaning_than
from transformer_mt.training.run.checkpoint import checkpoint_path, saved_steps

STILL = ("training.max_steps=1", "training.peak_lr=1e-30")  # one update that moves next to nothing


def first_weights(experiment, run_dir, path, *overrides):
    return weights_at(train_tiny(experiment, run_dir, *STILL, f"training.initialise_from={path}", *overrides), 1)


@pytest.mark.thorough
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


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "holder"), [("model", "model"), *thorough_rows(("checkpoints/best", "."))])
def test_another_vocabulary_is_explained(run, experiment, tmp_path, capsys, name, holder):
    average.main([str(run)])
    arguments = [experiment, f"data_dir={tmp_path / 'other'}", "tokenizer.vocab_size=450"]
    assert prepare.main([str(argument) for argument in arguments]) == 0
    arguments += [f"run_dir={tmp_path / 'new'}", f"training.initialise_from={run / name}"]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert says(error, "checkpoint-of-other-tokenizer", str(run / name), "training.initialise_from")
    assert error.endswith(f": tokenizer.from={run / holder}\n")
    # What the error advises is what helps.
    helps = [str(experiment), f"data_dir={tmp_path / 'third'}", f"tokenizer.from={run / holder}"]
    assert prepare.main(helps) == 0
    found = first_weights(experiment, tmp_path / "new", run / name, *helps[1:])
    assert found.keys() == load_file(run / name / "model.safetensors").keys()


def test_a_configuration_that_was_edited_does_not_hide_that_the_model_is_another(run, experiment, tmp_path, capsys):
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("num_heads: 2", "num_heads: 4"))
    weights = f"training.initialise_from={run / 'checkpoints/best'}"
    arguments = (experiment, f"run_dir={tmp_path / 'new'}", weights, "model.num_heads=4")
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2 and says(error, "weights-of-other-model", "model.num_heads: 2, now 4")


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*thorough("model"), "checkpoints/best"])
@pytest.mark.parametrize(
    ("override", "change"),
    [
        ("model.d_model=32", "d_model: 16, now 32"),
        ("model.output_bias=true", "output_bias: False, now True"),
        # With these, all weights have the same names and shapes.
        ("model.num_heads=4", "num_heads: 2, now 4"),
        *thorough_rows(("model.activation=gelu", "activation: relu, now gelu")),
        ("model={kind: rnn, d_model: 16}", "kind: transformer, now rnn"),
    ],
)
def test_another_model_is_explained(run, experiment, tmp_path, capsys, name, override, change):
    average.main([str(run)])
    arguments = [experiment, f"run_dir={tmp_path / 'new'}", f"training.initialise_from={run / name}", override]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert says(error, "weights-of-other-model", f"\n  model.{change}\n", str(run / name))
    assert not saved_steps(tmp_path / "new")


def test_a_checkpoint_without_the_configuration_of_its_run_says_itself_what_its_weights_mean(run, experiment, tmp_path):
    path = shutil.copytree(run / "checkpoints" / "best", tmp_path / "alone" / "checkpoints" / "best")
    found = first_weights(experiment, tmp_path / "new", path)
    for key, weight in load_file(path / "model.safetensors").items():
        torch.testing.assert_close(found[key], weight, rtol=0, atol=1e-20)


FREE = {"dropout", "attention_dropout", "max_positions"}
KINDS = [TransformerConfig(), RnnConfig(kind="rnn"), ConvolutionalConfig(kind="convolutional")]


@pytest.mark.parametrize(
    ("model", "key"), [(model, key) for model in KINDS for key in type(model).model_fields if key != "kind"]
)
def test_each_setting_of_a_model_makes_its_weights_mean_something_else_but_for_those_named(model, key):
    value = getattr(model, key)
    annotation = type(model).model_fields[key].annotation
    if get_origin(annotation) is Literal:
        other = next(choice for choice in get_args(annotation) if choice != value)
    else:
        other = not value if isinstance(value, bool) else value + 1
    found = other_meaning_than(model.model_dump(), model.model_copy(update={key: other}))
    assert found == ([] if key in FREE else [f"model.{key}: {value}, now {other}"])
    assert other_meaning_than(model.model_dump(), model) == []


def test_what_is_free_changes_no_weight(run, experiment, tmp_path):
    free = ("model.dropout=0.3", "model.attention_dropout=0.2", "model.max_positions=500")
    found = first_weights(experiment, tmp_path / "new", run / "checkpoints/best", *free)
    expected = load_file(run / "checkpoints/best" / "model.safetensors")
    assert found.keys() == expected.keys()


@pytest.mark.parametrize("name", [".", "checkpoints", "tokenizer.model", "nowhere"])
def test_what_is_neither_model_nor_checkpoint_is_named(run, experiment, tmp_path, capsys, name):
    arguments = [experiment, f"run_dir={tmp_path / 'new'}", f"training.initialise_from={run / name}"]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert says(error, "initialise-from-without-weights", f"{run / name} ")
    assert error.endswith(f"; set it to {run / 'checkpoints' / 'best'}\n") == (name == ".")


def test_the_model_of_a_run_is_offered_in_its_place(run, experiment, tmp_path, capsys):
    average.main([str(run)])
    arguments = [experiment, f"run_dir={tmp_path / 'new'}", f"training.initialise_from={run}"]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert error.endswith(f"; set it to {run / 'model'}\n")


def test_a_damaged_checkpoint_is_refused(run, experiment, tmp_path, capsys):
    file = checkpoint_path(run, 12) / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1  # a number is another, and the file still one that can be read
    file.write_bytes(content)
    arguments = [experiment, f"run_dir={tmp_path / 'new'}", f"training.initialise_from={checkpoint_path(run, 12)}"]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert says(error, "initialise-from-damaged", "step-00000012")
