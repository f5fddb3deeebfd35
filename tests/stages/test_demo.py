"""The demo: the stages that `make train` runs."""

import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from helpers.messages import message, says
from helpers.processes import python_path
from helpers.tiny import ROOT, status_and_error, write_experiment

from transformer_mt import demo, evaluate, prepare, report, train
from transformer_mt.base.errors import UserError
from transformer_mt.terminal import cli
from transformer_mt.train import stages


def test_the_stages_are_those_of_make_train():
    recipe = re.search(r"^train: .*?(?=^\S*:)", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL)[0]
    commands = stages("configs/demo_en_de.yaml", ["training.seed=3"], "runs/x", has_test_sets=True)
    assert [name for name, _ in commands] == ["prepare", "train", "average", "evaluate"]
    assert re.findall(r"-m transformer_mt\.(.*)", recipe) == ["train $(CONFIG) $(SET) --all"]
    assert f"DEMO := {demo.CONFIG}\n" in (ROOT / "Makefile").read_text()
    assert [arguments for _, arguments in commands] == [
        ["configs/demo_en_de.yaml", "training.seed=3"],
        ["configs/demo_en_de.yaml", "training.seed=3"],
        ["runs/x"],
        ["runs/x"],
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("status", [3, 130])
def test_the_first_stage_that_is_stopped_is_the_last(tmp_path, monkeypatch, capsys, status):
    begun = []

    def stage(name, status):
        return lambda arguments: begun.append(name) or status

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transformer_mt.prepare.main", stage("prepare", 0))
    monkeypatch.setattr("transformer_mt.train.main", stage("train", status))
    monkeypatch.setattr("transformer_mt.average.main", stage("average", 0))
    assert demo.main(["training.seed=3"]) == status
    assert begun == ["prepare", "train"]
    assert cli.command("demo", "training.seed=3") in capsys.readouterr().out


def test_after_ctrl_c_in_any_stage_the_command_that_runs_all_is_shown(tmp_path, monkeypatch, capsys):
    def stopped(arguments):
        raise KeyboardInterrupt

    config = str(write_experiment(tmp_path))
    monkeypatch.setattr("transformer_mt.prepare.main", stopped)
    with pytest.raises(KeyboardInterrupt):
        train.main([config, "--all"])
    assert cli.command("train", config, "--all") in capsys.readouterr().err


def test_train_all_goes_from_text_to_scores_and_a_second_time_finds_all_of_it_done(tmp_path, capsys):
    config = write_experiment(tmp_path)
    few = ["training.max_steps=2", "training.warmup_steps=1", "--all"]
    assert train.main([str(config), *few]) == 0
    out = capsys.readouterr().out
    assert "prepared: " in out and "tiny  BLEU" in out
    assert train.main([str(config), *few]) == 0
    again = capsys.readouterr().out
    assert "already prepared" in again and "already trained, 2 updates" in again and "tiny  BLEU" in again


@pytest.mark.thorough
@pytest.mark.parametrize("run_all", [train, demo])
def test_without_a_test_set_nothing_is_evaluated_until_evaluate_gets_one(tmp_path, monkeypatch, capsys, run_all):
    config = write_experiment(tmp_path)
    settings = yaml.safe_load(config.read_text())
    tests = settings["corpus"].pop("test")
    config.write_text(yaml.safe_dump(settings))
    monkeypatch.setattr(demo, "CONFIG", config)
    monkeypatch.setattr(demo, "OUTPUT", tmp_path / "corpus")
    few = ["training.max_steps=2", "training.warmup_steps=1"]
    assert run_all.main([str(config), *few, "--all"] if run_all is train else few) == 0
    assert (tmp_path / "run" / "model").exists() and not (tmp_path / "run" / "evaluation").exists()
    status, error = status_and_error(evaluate.main, tmp_path / "run", capsys=capsys)
    assert status == 2 and says(error, "config-without-test-sets")
    assert report.main([str(tmp_path / "run"), "--output", str(tmp_path / "report.html")]) == 0
    other = f"data_dir={tmp_path / 'data2'}"
    assert prepare.main([str(config), other, f"corpus.test={json.dumps(tests)}"]) == 0
    assert evaluate.main([str(tmp_path / "run"), other]) == 0
    assert "tiny  BLEU" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["cuda:99", "tpu9"])
def test_a_device_that_is_not_there_is_refused_before_the_first_stage(tmp_path, monkeypatch, capsys, device):
    config, begun = write_experiment(tmp_path), []
    monkeypatch.setattr("transformer_mt.prepare.main", lambda arguments: begun.append(arguments) or 1)
    status, error = status_and_error(train.main, config, f"training.device={device}", "--all", capsys=capsys)
    assert (status, begun) == (2, []) and says(error, "device-unusable", device)
    assert cli.run(train.main, [str(config), "training.device=cpu", "--all"]) == 1
    assert begun == [[str(config), "training.device=cpu"]]


def test_several_ranks_do_not_run_all_stages_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match=message("all-for-one-process")):
        train.main([str(write_experiment(tmp_path)), "--all"])


@pytest.mark.slow
def test_from_an_empty_directory_to_scores_and_again(tmp_path):
    few = ["training.max_steps=2", "training.warmup_steps=1", "training.num_threads=1"]
    for line in ("data/demo_corpus: 20000 train", "already prepared"):
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
