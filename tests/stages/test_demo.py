"""The demo: the stages that `make train` runs."""

import os
import re
import subprocess
import sys

import pytest
from helpers.processes import python_path
from helpers.tiny import ROOT

from transformer_mt import demo


def test_the_stages_are_those_of_make_train():
    recipe = re.search(r"^train: .*?(?=^\S*:)", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL)[0]
    commands = demo.stages(["training.seed=3"], "runs/x")
    assert [name for name, _ in commands] == re.findall(r"-m transformer_mt\.(\w+)", recipe)
    assert f"DEMO := {demo.CONFIG}\n" in (ROOT / "Makefile").read_text()
    assert [arguments for _, arguments in commands] == [
        ["configs/demo_en_de.yaml", "training.seed=3"],
        ["configs/demo_en_de.yaml", "training.seed=3"],
        ["runs/x"],
        ["runs/x"],
    ]


@pytest.mark.parametrize("status", [3, 130])
def test_the_first_stage_that_is_stopped_is_the_last(tmp_path, monkeypatch, status):
    begun = []

    def stage(name, status):
        return lambda arguments: begun.append(name) or status

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transformer_mt.prepare.main", stage("prepare", 0))
    monkeypatch.setattr("transformer_mt.train.main", stage("train", status))
    monkeypatch.setattr("transformer_mt.average.main", stage("average", 0))
    assert demo.main([]) == status
    assert begun == ["prepare", "train"]


@pytest.mark.slow
def test_from_an_empty_directory_to_scores_and_again(tmp_path):
    few = ["training.max_steps=2", "training.warmup_steps=1", "training.num_threads=1"]
    for line in ("Wrote data/demo_corpus", "is already complete"):
        done = subprocess.run(
            [sys.executable, "-m", "transformer_mt", "demo", *few],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": python_path(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert line in done.stdout
        assert "demo  BLEU" in done.stdout
        assert "-m transformer_mt.translate runs/demo_en_de/model" in done.stdout
    assert "already trained, 2 updates" in done.stdout
