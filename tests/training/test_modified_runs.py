"""Runs with modifiers: resumed as others are, and with the same settings."""

import pytest
from helpers.messages import says
from helpers.processes import records
from helpers.tiny import assert_same_weights, status_and_error, train_tiny, weights_at

from transformer_mt import prepare, train
from transformer_mt.text.protection import knows_pieces
from transformer_mt.text.tokenizer import Tokenizer

MODIFIERS = "training.modifiers={typos: 0.3, remove_end_punct: 0.3}"
SETTINGS = (MODIFIERS, "training.schedule=constant", "training.keep_last=9")


@pytest.mark.thorough
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_stopped_and_resumed_is_unbroken_bit_for_bit(experiment, tmp_path, layout):
    settings = (*SETTINGS, f"training.layout={layout}")
    unbroken = train_tiny(experiment, tmp_path / "unbroken", *settings, "training.max_steps=6")
    run = train_tiny(experiment, tmp_path / "run", *settings, "training.max_steps=3")
    train_tiny(experiment, tmp_path / "run", *settings, "training.max_steps=6")
    assert_same_weights(weights_at(run, 6), weights_at(unbroken, 6))
    plain = train_tiny(experiment, tmp_path / "plain", *settings[1:], "training.max_steps=6")
    assert records(run)[-1]["loss"] != records(plain)[-1]["loss"]


def test_a_run_keeps_its_modifiers(experiment, tmp_path, capsys):
    train_tiny(experiment, tmp_path, *SETTINGS, "training.max_steps=2")
    overrides = [f"run_dir={tmp_path}", *SETTINGS[1:], "training.modifiers={remove_end_punct: 0.3}"]
    status, error = status_and_error(train.main, experiment, *overrides, capsys=capsys)
    assert status == 2 and "training.modifiers.typos: 0.3, now 0.0" in error


PROTECT = "training.modifiers={protect: 0.5}"


@pytest.mark.thorough
def test_a_model_that_learns_to_copy_has_the_pieces_for_it(experiment, tmp_path, capsys):
    status, error = status_and_error(train.main, experiment, f"run_dir={tmp_path / 'old'}", PROTECT, capsys=capsys)
    assert status == 2 and says(error, "protect-without-pieces", "0.5")
    settings = (PROTECT, f"data_dir={tmp_path / 'data'}", "training.max_steps=2")
    assert prepare.main([str(experiment), *settings]) == 0
    run = train_tiny(experiment, tmp_path / "run", *settings)
    assert knows_pieces(Tokenizer.load(run))
    assert not knows_pieces(Tokenizer.load(experiment.parent / "data"))
