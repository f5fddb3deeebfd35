import resource

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from transformer_mt.data.batching import Position
from transformer_mt.errors import CheckpointError
from transformer_mt.training import checkpoint
from transformer_mt.training.checkpoint import (
    Progress,
    checkpoint_path,
    damage,
    load_checkpoint,
    newest_whole_checkpoint,
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


def test_pruning_keeps_the_newest_the_best_and_the_last_on_schedule(tmp_path):
    for step in (10, 20, 23, 30, 40, 50, 57):
        saved(tmp_path, Progress(step=step))
    prune(tmp_path, keep_last=2, save_every=10, best_step=20)
    assert saved_steps(tmp_path) == [20, 40, 50, 57]


def test_average_is_the_mean(tmp_path):
    models = [saved(tmp_path, Progress(step=step))[0] for step in (1, 2, 3)]
    paths = [checkpoint_path(tmp_path, step) for step in (1, 2, 3)]
    mean = checkpoint.average_weights(paths)
    for name in mean:
        weights = [dict(model.named_parameters())[name].detach().double() for model in models]
        torch.testing.assert_close(mean[name], (sum(weights) / 3).float(), rtol=1e-6, atol=0)
    assert mean.keys() == load_file(paths[0] / "model.safetensors").keys()
