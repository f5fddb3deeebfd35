"""What belongs together in a run: its model and its newer checkpoints, named to the user where they do not."""

import re
import shutil
import subprocess
import sys

import pytest
from helpers.optional import skip_without_package_of
from helpers.tiny import ROOT, demo_pairs, status_and_error, train_tiny

from transformer_mt import average, evaluate, export, plot, score, translate

SOURCE, TARGET = demo_pairs(1)[0]


@pytest.fixture(scope="module")
def averaged(trained, tmp_path_factory):
    """A run whose model is of its newest checkpoints."""
    run = shutil.copytree(trained, tmp_path_factory.mktemp("averaged") / "run", symlinks=True)
    assert average.main([str(run), "choose=last"]) == 0
    return run


@pytest.fixture(scope="module")
def stale(averaged, experiment, tmp_path_factory):
    """That, trained on afterwards."""
    run = shutil.copytree(averaged, tmp_path_factory.mktemp("stale") / "run", symlinks=True)
    return train_tiny(experiment, run, "training.max_steps=14")


@pytest.fixture
def use(tmp_path, capsys, caplog):
    """A function that has a stage read a model: exit status, what was raised, and the warnings."""
    file = tmp_path / "lines.txt"
    file.write_text(f"{SOURCE}\n")
    arguments = {
        translate: ["--quiet", "--input", file, "--output", tmp_path / "out.txt", "--device=cpu", "--workers=1"],
        score: [file, file, "--device=cpu", "--workers=1"],
        plot: ["--source", SOURCE, "--output", tmp_path / "picture.svg", "--device=cpu"],
        export: [tmp_path / "exported", "--format=ctranslate2"],
        evaluate: ["--device=cpu", "--workers=1"],
    }

    def run(stage, model):
        skip_without_package_of(stage.__name__)
        caplog.clear()
        status, error = status_and_error(stage.main, model, *arguments[stage], capsys=capsys)
        return status, error, caplog.messages

    return run


every_stage = pytest.mark.parametrize("stage", [translate, score, plot, export, evaluate], ids=lambda s: s.__name__)


@pytest.mark.thorough
@every_stage
def test_a_model_older_than_its_run_is_warned_of_once(stage, stale, use):
    status, _, warnings = use(stage, stale / "model")
    assert status == 0
    assert warnings == [
        f"warning: {stale}/model is the mean of 2 checkpoints, updates 10, 12, but its run has newer checkpoints, up "
        f"to update 14: `python -m transformer_mt.average {stale}` makes a new model"
    ]


def test_a_model_of_the_newest_checkpoints_is_not_warned_of(averaged, use):
    assert use(translate, averaged / "model") == (0, "", [])


def test_evaluating_a_run_warns_as_well(stale, use):
    assert "newer checkpoints" in use(evaluate, stale)[2][0]


def test_a_model_named_from_within_is_warned_of_as_well(stale, use, monkeypatch):
    monkeypatch.chdir(stale / "model")
    [warning] = use(translate, ".")[2]
    assert f"average {stale}` makes" in warning


def test_a_model_that_left_its_run_is_not_warned_of(stale, use, tmp_path):
    model = shutil.copytree(stale / "model", tmp_path / "model")
    assert use(translate, model) == (0, "", [])


def test_averaging_anew_ends_the_warning_also_if_an_older_checkpoint_is_the_best(stale, use, tmp_path):
    run = shutil.copytree(stale, tmp_path / "run", symlinks=True)
    assert average.main([str(run), "choose=best"]) == 0
    assert use(translate, run / "model")[2] == []


def test_a_checkpoint_of_an_interruption_is_looked_at_once_and_not_warned_of_for_ever(averaged, use, tmp_path):
    run = shutil.copytree(averaged, tmp_path / "run", symlinks=True)
    shutil.copytree(run / "checkpoints" / "step-00000012", run / "checkpoints" / "step-00000013")
    assert "newer checkpoints, up to update 13" in use(translate, run / "model")[2][0]
    average.main([str(run), "choose=last"])
    assert use(translate, run / "model")[2] == []


@every_stage
def test_a_run_in_place_of_its_model_is_answered_with_what_to_do(stage, averaged, trained, use):
    if stage is not evaluate:  # which finds the model in the run
        status, error, _ = use(stage, averaged)
        assert status == 2
        assert f"it is the directory of a run: name its model, {averaged}/model" in error
    for model, what in ((trained, "it is a run that is"), (trained / "model", "its run is")):
        status, error, _ = use(stage, model)
        assert status == 2
        assert error.startswith(f"error: {model}")
        assert f"{what} not averaged yet: run `python -m transformer_mt.average {trained}` first" in error


@every_stage
def test_what_is_neither_run_nor_model_is_answered_with_an_example(stage, tmp_path, use):
    (tmp_path / "empty").mkdir()
    status, error, _ = use(stage, tmp_path / "empty")
    assert status == 2
    assert "name the directory of a model, such as runs/<name>/model" in error


def test_make_train_runs_all_stages():
    command = ["make", "-n", "train", "CONFIG=configs/multi30k_en_de.yaml", "VENV=", f"PYTHON={sys.executable}"]
    recipe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [found.split() for found in re.findall(r"-m transformer_mt\.(.*)", recipe)] == [
        ["train", "configs/multi30k_en_de.yaml", "--all"]
    ]
