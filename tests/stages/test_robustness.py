"""Full disks, damaged files and too little memory: real ones, met by real processes."""

import resource
import sys

import pytest
import torch
from helpers.disk import small_disk
from helpers.messages import says
from helpers.processes import ended, records, said, start, start_ranks, training, wait_until
from helpers.tiny import ROOT, train_tiny
from safetensors.torch import load_file

from transformer_mt.training.run.checkpoint import checkpoint_path, damage, saved_steps

EQUAL = ["model.dropout=0.0", "training.adam_epsilon=0.001"]  # on any number of ranks, as in test_distributed
RUN = [
    *EQUAL,
    "training.max_steps=40",
    "training.validate_every=20",
    "training.log_every=1",
    "training.keep_last=1",
    "averaging.checkpoints=1",
]
FILES = ["model.safetensors", "training.safetensors", "state.json", "SHA256SUMS"]


@pytest.fixture(scope="module")
def unbroken(experiment, tmp_path_factory):
    return train_tiny(experiment, tmp_path_factory.mktemp("unbroken"), *RUN)


def assert_same_weights(run_dir, expected, exactly):
    for file in ("model.safetensors", "training.safetensors"):
        found, wanted = (load_file(checkpoint_path(run, 40) / file) for run in (run_dir, expected))
        tolerance = 0.0 if exactly else 1e-5
        assert found.keys() == wanted.keys()
        for name, weight in wanted.items():
            torch.testing.assert_close(found[name], weight, rtol=tolerance, atol=tolerance)


@pytest.fixture
def disk(tmp_path):
    """Room for three checkpoints."""
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_full_disk_stops_training_and_harms_no_checkpoint(experiment, unbroken, disk, tmp_path, num_ranks):
    run = disk.path / "run"
    train_tiny(experiment, run, *RUN, "training.max_steps=2")
    disk.fill(but=100_000)
    ranks = start_ranks(num_ranks, tmp_path, *training(experiment, run, *RUN))
    assert ended(*ranks) == [2] * num_ranks, said(*ranks)
    assert says(said(ranks[0]), "checkpoint-cannot-be-saved", str(checkpoint_path(run, 4)))
    assert says(said(ranks[0]), "advice-make-room") and "Traceback" not in said(ranks[0])
    assert said(*ranks[1:]) == ""
    assert saved_steps(run) == [2] and damage(checkpoint_path(run, 2)) == ""
    assert not list(run.glob("checkpoints/*.partial"))
    disk.make_room()
    assert_same_weights(train_tiny(experiment, run, *RUN), unbroken, exactly=num_ranks == 1)


@pytest.mark.slow
def test_a_log_that_cannot_be_written_stops_training(experiment, disk, tmp_path):
    run = disk.path / "run"
    process = start(tmp_path, "one", *training(experiment, run, *RUN, "training.save_every=40"))
    wait_until(lambda: records(run), process)
    disk.fill()
    assert ended(process) == [2], said(process)
    error = said(process).splitlines()[-1]
    assert says(error, "log-cannot-be-written", f"{run}/log.jsonl:", "No space left on device")
    assert says(error, "advice-make-room")


@pytest.mark.slow
def test_files_that_may_not_grow_are_like_a_full_disk(experiment, unbroken, tmp_path):
    """As the small disk, for those who may not mount one: no file may be larger, and later it may."""
    run = tmp_path / "run"
    train_tiny(experiment, run, *RUN, "training.max_steps=2")
    process = start(tmp_path, "one", *training(experiment, run, *RUN))
    resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    assert ended(process) == [2], said(process)
    assert says(said(process), "checkpoint-cannot-be-saved", str(checkpoint_path(run, 4)))
    assert saved_steps(run) == [2] and damage(checkpoint_path(run, 2)) == ""
    train_tiny(experiment, run, *RUN)
    assert_same_weights(run, unbroken, exactly=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found_and_the_end_is_the_same(experiment, unbroken, tmp_path, name, capsys):
    train_tiny(experiment, tmp_path, *RUN, "training.keep_last=2", "training.max_steps=4")
    file = checkpoint_path(tmp_path, 4) / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 8
    file.write_bytes(content)
    capsys.readouterr()
    train_tiny(experiment, tmp_path, *RUN)
    warning = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: "))
    assert f"{checkpoint_path(tmp_path, 4)} is damaged (" in warning
    assert name in warning or name == "SHA256SUMS"
    assert "resumes from the one before" in warning
    assert_same_weights(tmp_path, unbroken, exactly=True)


LARGE = ["model.d_model=64", "model.ffn_dim=512", "model.num_heads=4", *EQUAL, "training.tokens_per_update=0"]
WHOLE_CORPUS = [*LARGE, "training.tokens_per_batch=25000", "training.max_steps=2", "training.log_every=1"]


def train_within(megabytes, experiment, directory, *overrides):
    """The arguments of Python that train in so much memory."""
    worker = ["-W", "ignore", ROOT / "tests" / "helpers" / "memory_worker.py", megabytes]
    return [*worker, experiment, f"run_dir={directory / 'run'}", *overrides]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no limit of address space")
def test_what_does_not_fit_into_memory_is_split_and_the_updates_stay_the_same(experiment, tmp_path):
    train_tiny(experiment, tmp_path / "roomy", *WHOLE_CORPUS)
    expected = records(tmp_path / "roomy")
    assert [record["split"] for record in expected] == [0, 0]
    for megabytes in (200, 350):  # the whole takes about 620
        process = start(
            tmp_path / str(megabytes),
            "one",
            *train_within(megabytes, experiment, tmp_path / str(megabytes), *WHOLE_CORPUS),
        )
        assert ended(process) == [0], said(process)
        assert "did not fit into memory and were split in two" in said(process)
        found = records(tmp_path / str(megabytes) / "run")
        assert 0 < found[0]["split"] < found[1]["split"]
        for record, wanted in zip(found, expected, strict=True):
            for key in ("loss", "nll", "gradient_norm"):
                assert record[key] == pytest.approx(wanted[key], rel=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no limit of address space")
def test_a_pair_that_does_not_fit_into_memory_ends_with_the_keys_to_lower(experiment, tmp_path):
    # 103 MB of weights, and as much again for the gradient; then Adam's two moments.
    wide = ["model.ffn_dim=100000", "model.d_model=64", "model.encoder_layers=1", "model.decoder_layers=1"]
    process = start(tmp_path, "one", *train_within(180, experiment, tmp_path, *wide, "training.tokens_per_batch=256"))
    assert ended(process) == [2], said(process)
    assert says(said(process), "single-pair-too-large")
    for key in ("corpus.max_length", "model.d_model", "model.ffn_dim"):
        assert key in said(process)
    assert "Traceback" not in said(process)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no limit of address space")
def test_a_model_that_does_not_fit_into_memory_ends_with_advice(experiment, tmp_path):
    process = start(tmp_path, "one", *train_within(100, experiment, tmp_path, "model.ffn_dim=1000000"))
    assert ended(process) == [2], said(process)
    assert "error: out of memory" in said(process) and "Traceback" not in said(process)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no limit of address space")
def test_each_rank_splits_what_does_not_fit_and_none_can_that_is_sharded(experiment, tmp_path):
    def on_two_ranks(megabytes, run, *overrides):
        ranks = start_ranks(
            2, tmp_path, *train_within(megabytes, experiment, tmp_path / run, *WHOLE_CORPUS, *overrides)
        )
        return ended(*ranks), said(*ranks), records(tmp_path / run / "run")

    _, _, expected = on_two_ranks(0, "roomy")
    status, message, found = on_two_ranks(200, "tight")
    assert status == [0, 0], message
    assert found[0]["split"] > expected[0]["split"] == 0
    for record, wanted in zip(found, expected, strict=True):
        assert record["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
        assert record["gradient_norm"] == pytest.approx(wanted["gradient_norm"], rel=1e-5)
    status, message, found = on_two_ranks(100, "sharded", "training.sharding=full")
    assert (status, found) == ([2, 2], [])
    assert "with training.sharding=full no rank can split its micro-batch by itself" in message
    assert "Traceback" not in message
