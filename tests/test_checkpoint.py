import json
import os
import resource
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from transformer_mt.config import TrainingConfig
from transformer_mt.data.batching import Position
from transformer_mt.errors import CheckpointError
from transformer_mt.training import checkpoint
from transformer_mt.training.checkpoint import (
    Progress,
    checkpoint_path,
    damage,
    load_checkpoint,
    newest_whole_checkpoint,
    point_best_at,
    prune,
    save_checkpoint,
    saved_steps,
)

PROGRESS = Progress(step=7, position=Position(2, 5), tokens=99, seconds=1.5, best_step=6, best_metric=0.25)


def model_and_optimizer(width=4):
    model = nn.Sequential(nn.Linear(3, width), nn.Linear(width, 2))
    return model, torch.optim.Adam(model.parameters(), fused=True)


def moved(model, optimizer):
    """The weights after one more update, on random input."""
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return [parameter.detach().clone() for parameter in model.parameters()]


def saved(run_dir, progress=PROGRESS):
    model, optimizer = model_and_optimizer()
    moved(model, optimizer)
    save_checkpoint(run_dir, model, optimizer, progress, "digest")
    return model, optimizer


def test_what_is_loaded_goes_on_as_what_was_saved(tmp_path):
    model, optimizer = saved(tmp_path)
    expected = [moved(model, optimizer) for _ in range(3)]
    other, other_optimizer = model_and_optimizer()
    path, complaints = newest_whole_checkpoint(tmp_path)
    assert load_checkpoint(path, other, other_optimizer, "digest") == PROGRESS
    assert complaints == []
    for weights in expected:
        for one, two in zip(weights, moved(other, other_optimizer), strict=True):
            assert torch.equal(one, two)


def test_a_tied_weight_is_saved_once_and_tied_again(tmp_path, tiny_model):
    def tied(seed):
        model = tiny_model(seed=seed)
        assert len(list(model.named_parameters())) < len(list(model.named_parameters(remove_duplicate=False)))
        return model, torch.optim.Adam(model.parameters())

    model, optimizer = tied(seed=1)
    save_checkpoint(tmp_path, model, optimizer, PROGRESS, "digest")
    names = load_file(checkpoint_path(tmp_path, 7) / "model.safetensors").keys()
    assert names == {name for name, _ in model.named_parameters()}
    other, other_optimizer = tied(seed=2)
    load_checkpoint(checkpoint_path(tmp_path, 7), other, other_optimizer, "digest")
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_random_numbers_go_on_as_they_would_have(tmp_path):
    torch.manual_seed(5)
    saved(tmp_path)
    expected = torch.rand(3), torch.randn(3), torch.randperm(9)
    torch.manual_seed(6)
    load_checkpoint(checkpoint_path(tmp_path, 7), *model_and_optimizer(), "digest")
    found = torch.rand(3), torch.randn(3), torch.randperm(9)
    assert all(torch.equal(one, two) for one, two in zip(expected, found, strict=True))


# What changes the disk, wherever it is called from; serialize_file is that of safetensors.
CHANGES = {"mkdir", "open", "write", "serialize_file", "fsync", "replace", "unlink", "rmdir", "symlink"}


def killed_before_change(number, action):
    """Whether `action` was stopped, as by a kill, before it had changed the disk so many times."""
    count = 0

    def watch(frame, event, function):
        nonlocal count
        count += event == "c_call" and function.__name__ in CHANGES
        if count == number:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(watch)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_killed_at_any_instant_of_saving_every_checkpoint_there_is_whole(tmp_path):
    model, optimizer = saved(tmp_path, Progress(step=6))
    newest, number, killed = set(), 0, True
    while killed:
        number += 1
        killed = killed_before_change(number, lambda: save_checkpoint(tmp_path, model, optimizer, PROGRESS, "digest"))
        path, complaints = newest_whole_checkpoint(tmp_path)
        assert complaints == []
        newest.add(path)
        if path == checkpoint_path(tmp_path, 7):
            shutil.rmtree(path)
    assert newest == {checkpoint_path(tmp_path, 6), checkpoint_path(tmp_path, 7)}
    assert number > 10


def test_killed_at_any_instant_of_pruning_the_newest_and_the_best_are_whole(tmp_path):
    steps, kept = (10, 20, 30, 40), [20, 40]
    progress, settings = Progress(step=40, best_step=20), TrainingConfig(keep_last=1, save_every=10, max_steps=99)
    number, killed = 0, True
    while killed:
        number += 1
        for step in steps:
            if step not in saved_steps(tmp_path) or damage(checkpoint_path(tmp_path, step)):
                saved(tmp_path, Progress(step=step))
        killed = killed_before_change(number, lambda: prune(tmp_path, progress, settings))
        assert [damage(checkpoint_path(tmp_path, step)) for step in kept] == ["", ""]
    assert saved_steps(tmp_path) == kept
    assert number > 10


def test_killed_at_any_instant_of_linking_the_best_is_the_old_or_the_new(tmp_path):
    best, number, killed = tmp_path / "checkpoints" / "best", 0, True
    for step in (6, 7):
        saved(tmp_path, Progress(step=step))
    while killed:
        number += 1
        point_best_at(tmp_path, 6)
        killed = killed_before_change(number, lambda: point_best_at(tmp_path, 7))
        assert best.resolve() == checkpoint_path(tmp_path, 7) or killed
        assert best.resolve() in (checkpoint_path(tmp_path, 6), checkpoint_path(tmp_path, 7))
    assert number > 2


def test_a_checkpoint_appears_only_when_its_files_are_on_the_disk(tmp_path, monkeypatch):
    events, real_sync, real_replace = [], os.fsync, os.replace

    def sync(descriptor):
        events.append(os.fstat(descriptor).st_ino)
        real_sync(descriptor)

    def replace(old, new):
        events.append("appears")
        real_replace(old, new)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    saved(tmp_path)
    path = checkpoint_path(tmp_path, 7)
    appears = events.index("appears")
    assert set(events[:appears]) == {file.stat().st_ino for file in path.iterdir()}
    assert events[appears + 1 :] == [path.parent.stat().st_ino]


@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "state.json", "SHA256SUMS"])
@pytest.mark.parametrize("fault", ["bit", "cut", "gone"])
def test_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path, name, fault):
    saved(tmp_path, Progress(step=6))
    saved(tmp_path)
    file = checkpoint_path(tmp_path, 7) / name
    content = bytearray(file.read_bytes())
    if fault == "bit":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif fault == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.unlink()
    path, complaints = newest_whole_checkpoint(tmp_path)
    assert path == checkpoint_path(tmp_path, 6)
    assert len(complaints) == 1
    assert "step-00000007 is damaged" in complaints[0]


def test_a_checkpoint_without_one_of_its_checksums_is_damaged(tmp_path):
    saved(tmp_path)
    sums = checkpoint_path(tmp_path, 7) / "SHA256SUMS"
    lines = sums.read_text().splitlines(keepends=True)
    assert len(lines) == 3
    sums.write_text("".join(lines[:2]))
    assert damage(checkpoint_path(tmp_path, 7)) == "SHA256SUMS is incomplete"


def test_no_checkpoint_is_none(tmp_path):
    assert newest_whole_checkpoint(tmp_path) == (None, [])


def test_half_written_checkpoint_does_not_count(tmp_path):
    saved(tmp_path)
    checkpoint_path(tmp_path, 8).with_name("step-00000008.partial").mkdir()
    assert saved_steps(tmp_path) == [7]


def test_full_disk_leaves_the_earlier_checkpoint_and_no_debris(tmp_path):
    model, optimizer = saved(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # no file may be larger: writing fails as on a full disk
    try:
        with pytest.raises(CheckpointError, match=r"step-00000009: cannot be saved .*make room"):
            save_checkpoint(tmp_path, model, optimizer, Progress(step=9), "digest")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000007"]
    assert damage(checkpoint_path(tmp_path, 7)) == ""


def test_another_tokenizer_is_refused(tmp_path):
    saved(tmp_path)
    with pytest.raises(CheckpointError, match="another tokenizer"):
        load_checkpoint(checkpoint_path(tmp_path, 7), *model_and_optimizer(), "another")


def test_another_shape_is_refused_by_name(tmp_path):
    saved(tmp_path)
    with pytest.raises(CheckpointError, match=r"0\.bias is \(4,\) there and \(5,\) in this model"):
        load_checkpoint(checkpoint_path(tmp_path, 7), *model_and_optimizer(width=5), "digest")


@pytest.mark.parametrize(
    ("keep_last", "max_steps", "kept"), [(2, 99, [20, 40, 50, 57]), (1, 99, [20, 50, 57]), (2, 57, [20, 50, 57])]
)
def test_pruning_keeps_the_newest_the_best_and_the_last_on_schedule(tmp_path, keep_last, max_steps, kept):
    for step in (10, 20, 23, 30, 40, 50, 57, 60):
        saved(tmp_path, Progress(step=step))
    settings = TrainingConfig(keep_last=keep_last, save_every=10, max_steps=max_steps)
    prune(tmp_path, Progress(step=57, best_step=20), settings)
    assert saved_steps(tmp_path) == [*kept, 60], "a later one, damaged, is left to be written anew"


def test_average_is_the_mean(tmp_path):
    models = [saved(tmp_path, Progress(step=step))[0] for step in (1, 2, 3)]
    paths = [checkpoint_path(tmp_path, step) for step in (1, 2, 3)]
    mean = checkpoint.average_weights(paths)
    for name in mean:
        weights = [dict(model.named_parameters())[name].detach().double() for model in models]
        torch.testing.assert_close(mean[name], (sum(weights) / 3).float(), rtol=1e-6, atol=0)
    assert mean.keys() == load_file(paths[0] / "model.safetensors").keys()


@pytest.mark.parametrize("change", [{"surplus": 1}, {"step": None, "position": 3}])
def test_a_checkpoint_of_another_version_is_said(tmp_path, change):
    saved(tmp_path)
    state = json.loads((checkpoint_path(tmp_path, 7) / "state.json").read_text())
    state["progress"] |= change
    (checkpoint_path(tmp_path, 7) / "state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match="another version"):
        load_checkpoint(checkpoint_path(tmp_path, 7), *model_and_optimizer(), "digest")


def test_pruning_leaves_whole_checkpoints_when_newer_ones_are_damaged(tmp_path):
    for step in (6, 8, 10, 9):
        saved(tmp_path, Progress(step=step))
    (checkpoint_path(tmp_path, 10) / "model.safetensors").write_bytes(b"damaged")
    prune(tmp_path, Progress(step=9), TrainingConfig(save_every=2, keep_last=1))
    assert newest_whole_checkpoint(tmp_path)[0] == checkpoint_path(tmp_path, 9)
    assert saved_steps(tmp_path) == [8, 9, 10]
