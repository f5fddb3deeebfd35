"""A run that is killed again and again ends as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from helpers.processes import python_path
from helpers.tiny import ROOT, prepared_experiment, train_tiny
from safetensors.torch import load_file

from transformer_mt import average

KILLS = 20


def start(config, run_dir, *overrides):
    command = [sys.executable, "-m", "transformer_mt.train", str(config), f"run_dir={run_dir}", *overrides]
    environment = {**os.environ, "PYTHONPATH": python_path(ROOT)}
    with run_dir.with_suffix(".stderr").open("w") as stderr:
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr)


@pytest.mark.slow
def test_killed_at_twenty_random_instants_the_weights_are_those_of_the_unbroken_run(tmp_path):
    experiment = prepared_experiment(tmp_path)
    overrides = [
        "training.max_steps=3000",
        "training.save_every=20",
        "training.validate_every=100",
        "training.log_every=500",
        "averaging.checkpoints=3",
        "training.average_decay=0.999",
    ]
    began = time.monotonic()
    unbroken = start(experiment, tmp_path / "unbroken", *overrides)
    assert unbroken.wait() == 0, (tmp_path / "unbroken.stderr").read_text()
    seconds = time.monotonic() - began

    random.seed(1)
    killed = 0
    while killed < KILLS:
        process = start(experiment, tmp_path / "killed", *overrides)
        try:
            # From before the first import to well into the updates that a fresh start can make.
            process.wait(timeout=random.uniform(0.0, 4.0 + seconds / KILLS))
            pytest.fail(f"the run ended by itself after {killed} kills: {(tmp_path / 'killed.stderr').read_text()}")
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
    train_tiny(experiment, tmp_path / "killed", *overrides)

    for run in ("unbroken", "killed"):
        average.main([str(tmp_path / run), "choose=last"])
    newest = "checkpoints/step-00003000"
    # Weights; optimizer and moving average; the mean of the last checkpoints.
    for file in (f"{newest}/model.safetensors", f"{newest}/training.safetensors", "model/model.safetensors"):
        expected, found = load_file(tmp_path / "unbroken" / file), load_file(tmp_path / "killed" / file)
        assert all(torch.equal(weight, found[name]) for name, weight in expected.items())
