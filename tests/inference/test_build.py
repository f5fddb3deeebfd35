"""A model that the machine cannot hold is refused before it is built."""

import os
import subprocess
import sys

import pytest
import torch
from helpers.messages import message
from helpers.processes import python_path
from helpers.tiny import ROOT

from transformer_mt.base.errors import ConfigError
from transformer_mt.inference import fast
from transformer_mt.inference.fast import build_model, check_memory
from transformer_mt.settings.model_settings import TransformerConfig

BIG = TransformerConfig(encoder_layers=2, decoder_layers=2, d_model=65_536, ffn_dim=65_536, max_positions=8)


def test_a_model_beyond_the_machine_is_refused_before_it_is_built():
    before = torch.get_rng_state()
    with pytest.raises(ConfigError, match=message("no-memory-for-model")):
        build_model(BIG, 1000, 1000)
    assert torch.equal(before, torch.get_rng_state())


def test_training_needs_several_numbers_for_each_weight(monkeypatch):
    model = torch.nn.Linear(10, 10, bias=False)
    monkeypatch.setattr(fast, "machine_memory", lambda: 4 * 400)
    check_memory(model, numbers_per_weight=4)
    with pytest.raises(ConfigError, match=message("no-memory-for-model", "100")):
        check_memory(model, numbers_per_weight=5)


BUILDS = """
import sys
from transformer_mt.inference.fast import build_model
from transformer_mt.settings.model_settings import ConvolutionalConfig, RnnConfig, TransformerConfig

build_model(TransformerConfig(), 100, 100)
build_model(TransformerConfig(positions="learned", attention_score="additive", activation="swiglu"), 100, 100)
build_model(RnnConfig(kind="rnn"), 100, 100)
build_model(ConvolutionalConfig(kind="convolutional"), 100, 100)
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.thorough
def test_no_model_needs_the_compiler_to_be_built():
    """It would take a second of each command."""
    environment = os.environ | {"PYTHONPATH": python_path(ROOT)}
    done = subprocess.run([sys.executable, "-c", BUILDS], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "False\n"
