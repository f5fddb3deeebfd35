"""The stage average, as a command."""

import resource
import shutil

import pytest
import torch
from safetensors.torch import load_file
from tiny import status_and_error, train_tiny

from transformer_mt import average, prepare
from transformer_mt.training.checkpoint import Tensors, checkpoint_path, save_checkpoint
from transformer_mt.training.progress import Progress

MODEL_FILES = {"model.safetensors", "config.yaml", "tokenizer.model", "training_lines.json"}


def test_average_is_the_mean_of_the_newest_on_schedule(run):
    assert average.main([str(run)]) == 0
    mean = load_file(run / "model" / "model.safetensors")
    parts = [load_file(checkpoint_path(run, step) / "model.safetensors") for step in (10, 12)]
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (parts[0][name] + parts[1][name]) / 2)
    assert {path.name for path in (run / "model").iterdir()} == MODEL_FILES


def test_average_does_nothing_twice_and_anew_after_more_training(run, experiment, capsys):
    average.main([str(run)])
    before = (run / "model" / "model.safetensors").stat().st_mtime_ns
    average.main([str(run)])
    assert "already averaged, updates 10, 12" in capsys.readouterr().out
    assert (run / "model" / "model.safetensors").stat().st_mtime_ns == before
    train_tiny(experiment, run, "training.max_steps=14")
    average.main([str(run)])
    assert "updates 12, 14" in capsys.readouterr().out


def test_average_killed_before_the_model_is_complete_begins_again(run, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(average.Tokenizer, "save", killed)
        average.main([str(run)])
    average.main([str(run)])
    assert {path.name for path in (run / "model").iterdir()} == MODEL_FILES


def test_average_leaves_out_a_checkpoint_that_only_an_interruption_made(run, capsys):
    checkpoint_path(run, 12).rename(checkpoint_path(run, 11))
    average.main([str(run)])
    assert "updates 8, 10" in capsys.readouterr().out


def test_average_takes_in_the_last_update_of_all(experiment, tmp_path, capsys):
    run = train_tiny(experiment, tmp_path / "run", "training.max_steps=7")
    average.main([str(run)])
    assert "updates 6, 7" in capsys.readouterr().out


def test_average_of_the_best_is_the_best(run):
    average.main([str(run), "choose=best"])
    best = load_file(run / "checkpoints" / "best" / "model.safetensors")
    assert all(torch.equal(weight, best[name]) for name, weight in load_file(run / "model/model.safetensors").items())


def test_average_of_no_run_or_of_no_checkpoint_is_an_error(tmp_path, experiment, capsys):
    status, error = status_and_error(average.main, tmp_path, capsys=capsys)
    assert status == 2
    assert "holds no config.yaml" in error
    shutil.copy(experiment, tmp_path / "config.yaml")
    status, error = status_and_error(average.main, tmp_path, capsys=capsys)
    assert status == 2
    assert "holds no checkpoint; name a run" in error


def test_average_on_a_full_disk_leaves_the_model_that_was_there(run, capsys):
    average.main([str(run)])
    before = {path.name: path.read_bytes() for path in (run / "model").iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # no file may be larger: writing fails as on a full disk
    try:
        status, error = status_and_error(average.main, run, "checkpoints=1", capsys=capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert status == 2
    assert "model: cannot be written" in error
    assert "make room on the disk" in error
    assert {name: (run / "model" / name).read_bytes() for name in before} == before


def test_average_refuses_a_damaged_checkpoint(run, capsys):
    (checkpoint_path(run, 12) / "model.safetensors").write_bytes(b"damaged")
    status, error = status_and_error(average.main, run, capsys=capsys)
    assert status == 2
    assert "step-00000012 is damaged" in error


def test_average_without_a_best_checkpoint_says_so(run, capsys):
    best = (run / "checkpoints" / "best").resolve()
    shutil.rmtree(best)
    status, error = status_and_error(average.main, run, "choose=best", capsys=capsys)
    assert status == 2
    assert "knows no best checkpoint" in error and "choose=last" in error


def test_average_counts_the_last_update_also_off_the_schedule(experiment, tmp_path, capsys):
    run = train_tiny(experiment, tmp_path / "run", "training.max_steps=11", "training.save_every=4")
    average.main([str(run)])
    assert "updates 8, 11" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer.model", "model.safetensors"])
def test_average_mends_a_model_that_lacks_a_file(run, name, capsys):
    average.main([str(run)])
    (run / "model" / name).unlink()
    average.main([str(run)])
    assert "already" not in capsys.readouterr().out.splitlines()[-1]
    assert (run / "model" / name).is_file()


def test_average_refuses_a_tokenizer_that_is_not_the_checkpoints(run, experiment, tmp_path, capsys):
    other = tmp_path / "other"
    prepare.main([str(experiment), f"data_dir={other}", "tokenizer.vocab_size=450"])
    shutil.copy(other / "tokenizer.model", run / "tokenizer.model")
    status, error = status_and_error(average.main, run, capsys=capsys)
    assert status == 2
    assert f"{checkpoint_path(run, 10)} was trained with another tokenizer" in error
    assert f"into {run}" in error


def test_average_refuses_one_checkpoint_of_another_tokenizer_among_others(run, capsys):
    save_checkpoint(run, Tensors({}, {}), Progress(step=10), "0" * 64)
    status, error = status_and_error(average.main, run, capsys=capsys)
    assert status == 2
    assert f"{checkpoint_path(run, 10)} was trained with another tokenizer (00000000 instead of" in error
