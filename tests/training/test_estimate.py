"""What `train --estimate` measures, what it prints, and that it changes nothing."""

import fcntl
from functools import partial
from itertools import count, cycle

import pytest
import torch
from helpers.messages import message
from helpers.thorough import thorough
from helpers.tiny import new_learner, train_tiny, write_experiment

from transformer_mt import train
from transformer_mt.base.errors import ConfigError
from transformer_mt.batches.batching import collate
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training import loop
from transformer_mt.training.run import estimate as estimate_module
from transformer_mt.training.run.checkpoint import checkpoint_path
from transformer_mt.training.run.estimate import Estimate, estimate
from transformer_mt.training.scale.distributed import Ranks

PAIRS = [[1], [2], [3, 4], [5], [6, 7], [8], [9], [10, 11]]
"""The pairs of each micro-batch."""


@pytest.fixture
def quick(monkeypatch):
    """The command makes 1 update and times 5."""
    monkeypatch.setattr(train, "estimate", partial(estimate, seconds=0.0))


@pytest.fixture
def micro_batches(make_corpus):
    corpus = make_corpus([5] * 12, list(range(2, 14)), vocab_size=500)
    return [collate(corpus, torch.tensor(pairs).numpy()) for pairs in PAIRS]


@pytest.mark.parametrize(
    ("seconds_of", "num_warm_up", "num_timed"),
    [
        pytest.param(lambda step: 1.0, 3, 5, id="at-least-5-updates"),
        pytest.param(lambda step: 0.5, 3, 10, id="at-least-5-seconds"),
        pytest.param(lambda step: 100.0 if step == 1 else 1.0, 1, 5, id="slow-at-first"),
        pytest.param(lambda step: 25.0, 1, 3, id="at-most-60-seconds"),
        pytest.param(lambda step: 90.0, 1, 1, id="a-single-one"),
    ],
)
def test_the_numbers_are_those_of_the_updates_after_the_warm_up(
    experiment, micro_batches, seconds_of, num_warm_up, num_timed
):
    now, taken = 0.0, []

    def updates():
        nonlocal now
        for step, pair in zip(count(1), cycle(zip(micro_batches[::2], micro_batches[1::2], strict=True))):
            taken.append(sum(int((batch.labels_BT != 0).sum()) for batch in pair))
            now += seconds_of(step)
            yield pair

    config = load_config(experiment)
    found = estimate(new_learner(config), updates(), config.training, Ranks(), clock=lambda: now)
    assert len(taken) == num_warm_up + num_timed == num_warm_up + found.num_updates
    assert found.seconds_per_update == seconds_of(2)
    assert found.tokens_per_second == pytest.approx(sum(taken[num_warm_up:]) / (num_timed * seconds_of(2)))
    assert found.peak_memory > 100e6, "PyTorch alone takes more"


def test_the_weights_stay_what_they_are_although_it_trains(experiment, micro_batches):
    config = load_config(experiment)
    learner = new_learner(config)
    learner.loss.eval()
    before = [weight.clone() for weight in learner.model.parameters()]
    estimate(learner, cycle([micro_batches]), config.training, Ranks(), seconds=0.0)
    assert learner.loss.training, "with dropout"
    assert all(torch.equal(*both) for both in zip(before, learner.model.parameters(), strict=True))


@pytest.mark.parametrize("decay", ["0.9", *thorough("0")])
def test_the_size_of_a_checkpoint_is_that_of_its_files(experiment, micro_batches, tmp_path, decay):
    wide = ["model.d_model=64", "model.ffn_dim=256", f"training.average_decay={decay}", "training.max_steps=1"]
    checkpoint = checkpoint_path(train_tiny(experiment, tmp_path / "run", *wide, "training.metric=nll"), 1)
    size = sum((checkpoint / name).stat().st_size for name in ("model.safetensors", "training.safetensors"))
    config = load_config(experiment, wide)
    found = estimate(new_learner(config), cycle([micro_batches]), config.training, Ranks(), seconds=0.0)
    assert found.checkpoint_size == pytest.approx(size, rel=0.02)
    assert found.checkpoint_size < size, "the names of the tensors come on top"


def test_all_updates_and_all_checkpoints_are_reckoned_from_one():
    found = Estimate(12, 8123.4, 0.5, 1_234_000_000, 27_000_000)
    settings = TrainingConfig(max_steps=900, save_every=50, validate_every=400, keep_last=5, keep_best=2)
    assert found.said(settings, "CPU, 2 threads, bf16").splitlines() == [
        "CPU, 2 threads, bf16: 8,123 target tokens a second, measured in 12 updates",
        "900 updates: about 8 min, without the time of 3 validations",
        "memory: 1.2 GB at the peak of these updates",
        "disk: a checkpoint takes 27 MB; the run keeps at most 7, 189 MB",
    ]
    one = found.said(TrainingConfig(max_steps=900), "CPU").splitlines()
    assert one[1].endswith("1 validation") and one[3] == "disk: a checkpoint takes 27 MB"


def content(directory):
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in directory.rglob("*")
    }


def test_it_writes_nothing_even_while_the_run_is_trained(quick, run, experiment, capsys):
    before = content(run), content(experiment.parent)
    with (run / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert train.main([str(experiment), f"run_dir={run}", "model.num_heads=4", "--estimate"]) == 0
    assert (content(run), content(experiment.parent)) == before
    said = capsys.readouterr().out
    assert "CPU, 1 thread, fp32: " in said and "measured in 5 updates" in said and "12 updates: about " in said


def test_it_does_not_begin_a_run(quick, experiment, tmp_path):
    assert train.main([str(experiment), f"run_dir={tmp_path / 'run'}", "--estimate"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_its_updates_are_those_with_which_training_begins(quick, experiment, tmp_path, monkeypatch):
    real, seen = loop.one_update, {}

    def recording(name):
        def one_update(learner, batches, rate, step, settings, ranks):
            rows = [(batch.source_N.tolist(), batch.decoder_input_N.tolist()) for batch in batches]
            seen.setdefault(name, []).append((step, learner.device, learner.loss.training, rows))
            return real(learner, batches, rate, step, settings, ranks)

        return one_update

    monkeypatch.setattr(loop, "one_update", recording("training"))
    monkeypatch.setattr(estimate_module, "one_update", recording("estimate"))
    settings = ["training.modifiers={typos: 0.5}", "training.layout=packed", "training.max_steps=6"]
    arguments = [str(experiment), f"run_dir={tmp_path}", *settings, "training.metric=nll", "training.precision=bf16"]
    assert train.main(arguments) == train.main([*arguments, "--estimate"]) == 0
    assert len(seen["training"]) == 6 and seen["estimate"] == seen["training"]


def test_several_ranks_do_not_estimate(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=message("estimate-for-one-process")):
        train.main([str(write_experiment(tmp_path)), "--estimate"])
