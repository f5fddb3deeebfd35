import errno
import json
import os
import resource
import shutil
from dataclasses import replace

import pytest
import torch
from helpers.killed import killed_before_change
from helpers.messages import message
from safetensors.torch import load_file
from torch import nn

from transformer_mt.base.errors import CheckpointError
from transformer_mt.batches.loader import Position
from transformer_mt.kernels.device import choose_device
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.storage import checksums
from transformer_mt.storage.files import replacing
from transformer_mt.training.learning import BatchLoss, Learner, MovingAverage
from transformer_mt.training.progress import Progress
from transformer_mt.training.run.candidates import average_weights, moving_average
from transformer_mt.training.run.checkpoint import (
    Tensors,
    checkpoint_path,
    damage,
    finish_saving,
    load_checkpoint,
    load_progress,
    newest_whole_checkpoint,
    point_best_at,
    prune,
    save_checkpoint,
    saved_steps,
)

PROGRESS = Progress(
    step=7,
    position=Position(2, 5),
    tokens=99,
    seconds=1.5,
    skipped=4,
    skipped_in_a_row=2,
    split=3,
    best=((0.25, 6), (0.125, 3)),
    validations_since_best=1,
)


def learner_of(model, decay=0.0, device=None):
    loss = BatchLoss(model, device or choose_device("cpu", "fp32"), 0.1, False)
    return Learner(
        loss, torch.optim.Adam(model.parameters(), fused=True), MovingAverage(model, decay), TrainingConfig()
    )


class Layers(nn.Sequential):
    features = nn.Sequential.forward


def new_learner(width=4, decay=0.0):
    return learner_of(Layers(nn.Linear(3, width), nn.Linear(width, 2)), decay)


def moved(learner, step=1):
    """The weights and their moving average after one more update, on input that the step gives."""
    input_NX = torch.randn(5, 3, generator=torch.Generator().manual_seed(step))
    learner.model(input_NX).square().sum().backward()
    learner.optimizer.step()
    learner.optimizer.zero_grad()
    learner.average.update(step)
    tensors = [*learner.model.parameters(), *learner.average.averages.values()]
    return [tensor.detach().clone() for tensor in tensors]


def saved(run_dir, progress=PROGRESS, decay=0.0):
    learner = new_learner(decay=decay)
    moved(learner)
    save_checkpoint(run_dir, Tensors.of(learner), progress, "digest")
    return learner


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_what_is_loaded_goes_on_as_what_was_saved(tmp_path, decay):
    learner = saved(tmp_path, decay=decay)
    expected = [moved(learner, step) for step in (2, 3, 4)]
    other = new_learner(decay=decay)
    path, complaints = newest_whole_checkpoint(tmp_path)
    load_checkpoint(path, other, "digest")
    assert load_progress(path) == PROGRESS
    assert complaints == []
    for step, tensors in enumerate(expected, start=2):
        for one, two in zip(tensors, moved(other, step), strict=True):
            assert torch.equal(one, two)


def test_what_is_loaded_is_apart_from_its_file(tmp_path):
    """A checkpoint is mapped into memory to be read, and deleted when it is old."""
    saved(tmp_path, decay=0.9)
    learner = new_learner(decay=0.9)
    load_checkpoint(checkpoint_path(tmp_path, 7), learner, "digest")
    expected = [tensor.clone() for tensor in Tensors.of(learner).training.values()]
    for name in ("model.safetensors", "training.safetensors"):
        with (checkpoint_path(tmp_path, 7) / name).open("r+b") as file:
            file.write(b"\0" * (checkpoint_path(tmp_path, 7) / name).stat().st_size)
    for one, two in zip(expected, Tensors.of(learner).training.values(), strict=True):
        assert torch.equal(one, two)


def test_the_moving_average_of_a_checkpoint_is_found(tmp_path):
    learner = saved(tmp_path, decay=0.9)
    found = moving_average(checkpoint_path(tmp_path, 7))
    assert (
        found.keys()
        == learner.average.averages.keys()
        == load_file(checkpoint_path(tmp_path, 7) / "model.safetensors").keys()
    )
    for name, average in learner.average.averages.items():
        assert torch.equal(found[name], average)
        assert not torch.equal(average, learner.model.get_parameter(name))


def test_a_tied_weight_is_saved_once_and_tied_again(tmp_path, tiny_model):
    def tied(seed):
        model = tiny_model(seed=seed).float()
        assert len(list(model.named_parameters())) < len(list(model.named_parameters(remove_duplicate=False)))
        return learner_of(model)

    learner, other = tied(seed=1), tied(seed=2)
    save_checkpoint(tmp_path, Tensors.of(learner), PROGRESS, "digest")
    names = load_file(checkpoint_path(tmp_path, 7) / "model.safetensors").keys()
    assert names == {name for name, _ in learner.model.named_parameters()}
    load_checkpoint(checkpoint_path(tmp_path, 7), other, "digest")
    for one, two in zip(learner.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_killed_at_any_instant_of_saving_every_checkpoint_there_is_whole(tmp_path):
    tensors = Tensors.of(saved(tmp_path, Progress(step=6), decay=0.9))
    newest, number, killed = set(), 0, True
    while killed:
        number += 1
        killed = killed_before_change(number, lambda: save_checkpoint(tmp_path, tensors, PROGRESS, "digest"))
        path, complaints = newest_whole_checkpoint(tmp_path)
        assert complaints == []
        newest.add(path)
        if path == checkpoint_path(tmp_path, 7):
            shutil.rmtree(path)
    assert newest == {checkpoint_path(tmp_path, 6), checkpoint_path(tmp_path, 7)}
    assert number > 10


def test_killed_at_any_instant_of_saving_a_step_again_its_checkpoint_is_the_old_or_the_new(tmp_path):
    again, found, number, killed = replace(PROGRESS, tokens=100), [], 0, True
    tensors = Tensors.of(saved(tmp_path))
    while killed:
        number += 1
        saved(tmp_path)
        killed = killed_before_change(number, lambda: save_checkpoint(tmp_path, tensors, again, "digest"))
        finish_saving(tmp_path)
        path, complaints = newest_whole_checkpoint(tmp_path)
        assert complaints == []
        found.append(load_progress(path))
    assert found == sorted(found, key=[PROGRESS, again].index) and again in found[:-1] and PROGRESS in found


def test_killed_at_any_instant_of_pruning_the_newest_and_the_best_are_whole(tmp_path):
    steps, kept = (10, 20, 30, 40), [20, 40]
    progress, settings = Progress(step=40, best=((0.5, 20),)), TrainingConfig(keep_last=1, save_every=10, max_steps=99)
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
        if new == checkpoint_path(tmp_path, 7):
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
    assert damage(checkpoint_path(tmp_path, 7)) == "training.safetensors is not named in SHA256SUMS"


def test_a_file_that_cannot_be_read_is_not_to_be_averaged_again(tmp_path):
    learner = saved(tmp_path)
    (checkpoint_path(tmp_path, 7) / "training.safetensors").unlink()
    with pytest.raises(CheckpointError, match=message("weights-cannot-be-read", "training.safetensors")) as error:
        load_checkpoint(checkpoint_path(tmp_path, 7), learner, "digest")
    assert "average" not in str(error.value)


def test_no_checkpoint_is_none(tmp_path):
    assert newest_whole_checkpoint(tmp_path) == (None, [])


def test_half_written_checkpoint_does_not_count(tmp_path):
    saved(tmp_path)
    checkpoint_path(tmp_path, 8).with_name("step-00000008.partial").mkdir()
    assert saved_steps(tmp_path) == [7]


def test_full_disk_leaves_the_earlier_checkpoint_and_no_debris(tmp_path):
    tensors = Tensors.of(saved(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # no file may be larger: writing fails as on a full disk
    try:
        with pytest.raises(CheckpointError, match=message("checkpoint-cannot-be-saved", "step-00000009", "room")):
            save_checkpoint(tmp_path, tensors, Progress(step=9), "digest")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000007"]
    assert damage(checkpoint_path(tmp_path, 7)) == ""


def test_a_disk_that_is_full_when_the_checksums_are_written_leaves_no_debris_either(tmp_path, monkeypatch):
    def full(path, content):
        with replacing(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tensors = Tensors.of(saved(tmp_path))
    monkeypatch.setattr(checksums, "write_whole", full)
    with pytest.raises(CheckpointError, match=message("checkpoint-cannot-be-saved", "step-00000009", "room")):
        save_checkpoint(tmp_path, tensors, Progress(step=9), "digest")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000007"]


def test_another_tokenizer_is_refused(tmp_path):
    saved(tmp_path)
    with pytest.raises(CheckpointError, match=message("checkpoint-of-other-tokenizer")):
        load_checkpoint(checkpoint_path(tmp_path, 7), new_learner(), "another")


def test_another_shape_is_refused_by_name(tmp_path):
    saved(tmp_path)
    with pytest.raises(CheckpointError, match=message("weight-shapes-differ", "0.bias")):
        load_checkpoint(checkpoint_path(tmp_path, 7), new_learner(width=5), "digest")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("keep_last", "best", "max_steps", "kept"),
    [
        (2, [20], 99, [20, 40, 50, 57]),
        (1, [20], 99, [20, 50, 57]),
        (2, [20], 57, [20, 50, 57]),
        (1, [23, 50, 10], 99, [10, 23, 50, 57]),
        (1, [], 99, [50, 57]),
    ],
)
def test_pruning_keeps_the_newest_the_best_and_the_last_on_schedule(tmp_path, keep_last, best, max_steps, kept):
    for step in (10, 20, 23, 30, 40, 50, 57, 60):
        saved(tmp_path, Progress(step=step))
    settings = TrainingConfig(keep_last=keep_last, save_every=10, max_steps=max_steps)
    prune(tmp_path, Progress(step=57, best=tuple((0.5, step) for step in best)), settings)
    assert saved_steps(tmp_path) == [*kept, 60], "a later one, damaged, is left to be written anew"


def test_average_is_the_mean(tmp_path):
    models = [saved(tmp_path, Progress(step=step)).model for step in (1, 2, 3)]
    paths = [checkpoint_path(tmp_path, step) for step in (1, 2, 3)]
    mean = average_weights(paths)
    for name in mean:
        weights = [dict(model.named_parameters())[name].detach().double() for model in models]
        torch.testing.assert_close(mean[name], (sum(weights) / 3).float(), rtol=1e-6, atol=0)
    assert mean.keys() == load_file(paths[0] / "model.safetensors").keys()


@pytest.mark.parametrize("change", [{"surplus": 1}, {"step": None, "position": 3}, {"best": [1]}, {"best": None}])
def test_a_checkpoint_of_another_version_is_said(tmp_path, change):
    saved(tmp_path)
    state = json.loads((checkpoint_path(tmp_path, 7) / "state.json").read_text())
    state["progress"] |= change
    (checkpoint_path(tmp_path, 7) / "state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match=message("checkpoint-of-other-version")):
        load_progress(checkpoint_path(tmp_path, 7))


def test_pruning_leaves_whole_checkpoints_when_newer_ones_are_damaged(tmp_path):
    for step in (6, 8, 10, 9):
        saved(tmp_path, Progress(step=step))
    (checkpoint_path(tmp_path, 10) / "model.safetensors").write_bytes(b"damaged")
    prune(tmp_path, Progress(step=9), TrainingConfig(save_every=2, keep_last=1))
    assert newest_whole_checkpoint(tmp_path)[0] == checkpoint_path(tmp_path, 9)
    assert saved_steps(tmp_path) == [8, 9, 10]


def test_what_a_network_keeps_of_a_deleted_checkpoint_is_none_and_goes_the_next_time(tmp_path, monkeypatch):
    for step in (2, 4, 6):
        saved(tmp_path, Progress(step=step))
    settings = TrainingConfig(save_every=2, keep_last=1)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)  # a file is still read there
        prune(tmp_path, Progress(step=6), settings)
    assert saved_steps(tmp_path) == [6]
    prune(tmp_path, Progress(step=6), settings)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000006"]
