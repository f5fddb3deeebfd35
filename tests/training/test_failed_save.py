"""What becomes of a run whose checkpoints cannot be saved.

No file may be larger than some bytes, as on a full disk.
"""

import errno
import os
import resource
from contextlib import contextmanager, nullcontext

import pytest
from helpers.messages import says
from helpers.tiny import assert_same_weights, train_tiny, weights_at

from transformer_mt import train as train_stage
from transformer_mt.terminal import cli
from transformer_mt.training.run import running
from transformer_mt.training.run.checkpoint import checkpoint_path, saved_steps


@pytest.fixture
def failing(monkeypatch):
    """A function that lets the saving of some steps fail."""
    real_save = running.save_checkpoint

    def fail(*steps):
        def save(run_dir, tensors, progress, *others):
            with no_room() if progress.step in steps else nullcontext():
                real_save(run_dir, tensors, progress, *others)

        monkeypatch.setattr(running, "save_checkpoint", save)

    return fail


@contextmanager
def no_room():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.thorough
def test_it_ends_the_run_which_then_goes_on_from_the_checkpoint_before(experiment, trained, tmp_path, failing, capsys):
    failing(6)
    assert cli.run(train_stage.main, [str(experiment), f"run_dir={tmp_path}"]) == 2
    assert says(
        capsys.readouterr().err, "checkpoint-cannot-be-saved", "step-00000006", "Earlier checkpoints are complete"
    )
    assert saved_steps(tmp_path)[-1] == 4
    failing()
    assert_same_weights(weights_at(train_tiny(experiment, tmp_path), 12), weights_at(trained, 12))
    assert saved_steps(tmp_path) == saved_steps(trained)


def test_at_the_first_no_earlier_ones_are_spoken_of(experiment, trained, tmp_path, failing, capsys):
    failing(2)
    assert cli.run(train_stage.main, [str(experiment), f"run_dir={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert says(error, "checkpoint-cannot-be-saved", "step-00000002", "There is no earlier checkpoint", "make room")
    assert "complete" not in error and not saved_steps(tmp_path)
    failing()
    assert_same_weights(weights_at(train_tiny(experiment, tmp_path), 12), weights_at(trained, 12))


@pytest.mark.thorough
def test_a_run_whose_last_checkpoint_fails_has_not_succeeded(experiment, tmp_path, failing, capsys):
    failing(12)
    assert cli.run(train_stage.main, [str(experiment), f"run_dir={tmp_path}", "training.metric=nll"]) == 2
    error = capsys.readouterr().err
    assert "error: " in error
    assert saved_steps(tmp_path)[-1] == 10
    # It would have been the best.
    assert error.count("the best so far") == 3
    assert (tmp_path / "checkpoints" / "best").resolve() == checkpoint_path(tmp_path, 8)


@pytest.mark.thorough
def test_a_disk_without_links_costs_only_the_link(experiment, trained, tmp_path, monkeypatch, capsys):
    def no_links(*_args, **_options):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "symlink", no_links)
    train_tiny(experiment, tmp_path)
    best = (trained / "checkpoints" / "best").resolve().name
    warnings = [line for line in capsys.readouterr().err.splitlines() if "checkpoints/best: cannot be made" in line]
    assert warnings[-1].endswith(best)
    assert_same_weights(weights_at(tmp_path, 12), weights_at(trained, 12))
