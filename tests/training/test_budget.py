"""training.tokens_per_batch=auto: as many positions as fit into memory, found in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.processes import python_path
from helpers.tiny import ROOT, new_learner, train_tiny

from transformer_mt import train as train_stage
from transformer_mt.base.errors import TrainingError
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader
from transformer_mt.settings.reading import load_config
from transformer_mt.training.run import beginning
from transformer_mt.training.scale.distributed import Ranks

MEGABYTE = 2**20


def found_with(megabytes, experiment):
    """The budget where the process has so much memory more than it began with, that memory, and what it then takes."""
    script = f"""
import json
from dataclasses import replace
from pathlib import Path
from helpers.tiny import new_learner
from transformer_mt.settings.reading import load_config
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader
from transformer_mt.kernels.device import choose_device
from transformer_mt.base.memory import peak_memory
from transformer_mt.training.run import beginning
from transformer_mt.training.scale.distributed import Ranks
config = load_config({str(experiment)!r}, ["model.d_model=256", "model.ffn_dim=1024", "model.encoder_layers=4"])
choose_device("cpu", "fp32", 1)
learner = new_learner(config, vocab_size=20_000)
corpus = EncodedCorpus.load(Path({str(experiment.parent / "data" / "train")!r}))
loader = Loader(corpus, 0, 100_000_000, 1)
memory = peak_memory() + {megabytes * MEGABYTE}
beginning._room = lambda device, ranks: memory
found = beginning.largest_tokens_per_batch(learner.loss, loader, Ranks())
taken = beginning._peak(learner.loss, replace(loader, tokens_per_batch=found))
print(json.dumps([found, memory, taken, loader.smallest_budget]))
"""
    environment = os.environ | {"PYTHONPATH": python_path(ROOT, ROOT / "tests")}
    ended = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.thorough
def test_the_budget_fills_most_of_the_memory_and_not_more(experiment):
    found, memory, taken, smallest = found_with(500, experiment)
    assert smallest < found < 100_000_000
    assert 0.6 * memory < taken < memory


def test_no_more_than_an_update_is_taken(experiment):
    run = train_tiny(
        experiment, Path(experiment.parent / "auto"), "training.tokens_per_batch=auto", "training.max_steps=2"
    )
    state = json.loads((run / "checkpoints" / "step-00000002" / "state.json").read_text())
    assert state["progress"]["tokens_per_batch"] == load_config(experiment).training.tokens_per_update == 700


def test_a_run_keeps_the_budget_that_it_began_with(experiment, tmp_path, monkeypatch):
    arguments = ("training.tokens_per_batch=auto", "training.tokens_per_update=300")
    run = train_tiny(experiment, tmp_path, *arguments, "training.max_steps=2")
    monkeypatch.setattr(train_stage, "largest_tokens_per_batch", None)  # whoever asks again, fails
    train_tiny(experiment, run, *arguments, "training.max_steps=4")
    state = json.loads((run / "checkpoints" / "step-00000004" / "state.json").read_text())
    assert state["progress"]["tokens_per_batch"] == 300


def test_where_the_longest_pair_does_not_fit_the_keys_to_lower_are_named(experiment, monkeypatch):
    monkeypatch.setattr(beginning, "_room", lambda device, ranks: 10 * MEGABYTE)
    loader = Loader(EncodedCorpus.load(experiment.parent / "data" / "train"), 0, 700, 1)
    with pytest.raises(TrainingError, match=r"longest pair, of \d+ pieces.*corpus.max_length.*model.d_model"):
        beginning.largest_tokens_per_batch(new_learner(load_config(experiment)).loss, loader, Ranks())
