"""A run and the data that it was trained on."""

import shutil

import pytest
from helpers.messages import says
from helpers.tiny import assert_same_weights, prepared_experiment, renew_sums, status_and_error, train_tiny, weights_at

from transformer_mt import prepare, train
from transformer_mt.preparing.prepared import data_digests
from transformer_mt.training.run.checkpoint import checkpoint_path

HALF = "training.max_steps=6"
SHARD = "train/train/00000"


@pytest.fixture
def changed(tmp_path):
    """A half run, whose text was changed since and prepared again with its tokenizer; how it goes on."""
    config = prepared_experiment(tmp_path)
    run = train_tiny(config, tmp_path / "run", HALF)
    for side in ("en", "de"):
        file = tmp_path / f"train.{side}"
        first, *lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join([*lines, first]), encoding="utf-8")
    shutil.rmtree(tmp_path / "data")
    tokenizer = f"tokenizer.from={run}"
    assert prepare.main([str(config), tokenizer]) == 0
    return run, [config, f"run_dir={run}", tokenizer]


@pytest.mark.thorough
def test_text_that_was_changed_in_mid_run_is_refused(changed, capsys):
    run, arguments = changed
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert says(error, "data-changed-during-run", "6", "training data")
    assert "training.initialise_from" in error
    assert not checkpoint_path(run, 8).exists()


@pytest.mark.thorough
def test_data_that_were_moved_or_prepared_again_are_the_same(experiment, trained, tmp_path, capsys):
    run = train_tiny(experiment, tmp_path / "run", HALF)
    again = tmp_path / "again"
    assert prepare.main([str(experiment), f"data_dir={again}"]) == 0
    assert data_digests(again) == data_digests(experiment.parent / "data")
    train_tiny(experiment, run, f"data_dir={again.rename(tmp_path / 'moved')}")
    assert_same_weights(weights_at(run, 12), weights_at(trained, 12))
    assert "data" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "file", [f"{SHARD}/source.ids", f"{SHARD}/target.offsets", "valid/target.ids", "valid.target.txt"]
)
def test_any_change_of_ids_or_text_is_another_digest(experiment, tmp_path, file):
    data = shutil.copytree(experiment.parent / "data", tmp_path / "data")
    before = data_digests(data)
    content = bytearray((data / file).read_bytes())
    content[len(content) // 2] ^= 1
    (data / file).write_bytes(content)
    renew_sums(data)
    found = data_digests(data)
    assert [name for name in found if found[name] != before[name]] == [file[:5]]
