"""How fast a model is trained is measured after the first updates, which are slow."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.tiny import new_learner, status_and_error, train_tiny

from transformer_mt import train
from transformer_mt.base.errors import ConfigError
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.storage.checksums import checkpoint_path
from transformer_mt.training.run import estimate

LENGTHS = np.full(64, 10)
TINY = TransformerConfig(encoder_layers=1, decoder_layers=1, d_model=8, ffn_dim=8, num_heads=1)


@pytest.fixture
def clocked(monkeypatch):
    """Measure a speed by a clock of which each update takes so many seconds. Returns it, and the seconds and tokens."""

    def measure(seconds_of_update):
        now, steps, real = 0.0, [], estimate.one_update

        def one_update(learner, batches, rate, step):
            nonlocal now
            made = real(learner, batches, rate, step)
            now += seconds_of_update(step)
            steps.append((seconds_of_update(step), made.num_labels))
            return made

        monkeypatch.setattr(estimate, "one_update", one_update)
        monkeypatch.setattr(estimate.time, "perf_counter", lambda: now)
        settings = TrainingConfig(tokens_per_batch=40, device="cpu", precision="fp32", num_threads=1)
        return estimate.tokens_per_second(TINY, settings, 50, (LENGTHS, LENGTHS), 5.0), steps

    return measure


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seconds_of_update", "num_timed"),
    [
        pytest.param(lambda step: 1.5 if step < 4 else 1.0, 3, id="at-least-3-updates"),
        pytest.param(lambda step: 0.25, 10, id="at-least-so-many-seconds"),
        pytest.param(lambda step: 10.0, 1, id="not-many-more"),
    ],
)
def test_the_speed_is_that_of_the_timed_updates(clocked, seconds_of_update, num_timed):
    found, steps = clocked(seconds_of_update)
    timed = steps[-num_timed:]
    assert len(steps) - 2 * num_timed in (1, 3)
    assert found == pytest.approx(sum(labels for _, labels in timed) / sum(seconds for seconds, _ in timed), rel=0.1)


@pytest.mark.parametrize("slow", [range(4, 7), range(9, 99)])
def test_of_two_measurements_the_faster_one_counts(clocked, slow):
    """Another program ran during the first half, of 3 updates, or the second."""
    found, steps = clocked(lambda step: 1.0 if step in slow else 0.5)
    fast = [labels / seconds for seconds, labels in steps if seconds < 1]
    assert min(fast) <= found <= max(fast)


class Replaying:
    """A learner on a GPU that replays updates, by a clock. One with batches of a new shape takes 100 s, others 1 s."""

    def __init__(self, monkeypatch):
        self.loss = SimpleNamespace(train=lambda: None)
        self.device = self
        self.shapes, self.speeds = set(), set()
        self.now, self.queued, self.most_queued = 0.0, 0, 0
        monkeypatch.setattr(estimate, "one_update", self.update)
        monkeypatch.setattr(estimate.time, "perf_counter", lambda: self.now)

    def update(self, _, batches, rate, step):
        new = {batch.shape for batch in batches} - self.shapes
        self.shapes |= new
        self.queued += 100 if new else 1
        self.most_queued = max(self.most_queued, self.queued if not new else 0)
        return SimpleNamespace(num_labels=sum(batch.num_labels for batch in batches))

    def synchronize(self):
        self.now, self.queued = self.now + self.queued, 0


def test_on_a_gpu_only_replays_are_timed_and_few_are_started_ahead(make_corpus, monkeypatch):
    """The last batch of an epoch has a shape of its own."""
    lengths = np.random.default_rng(1).integers(5, 12, 1800).tolist()
    loader = Loader(make_corpus(lengths, lengths), 2048, 0, 1, "packed")
    learner = Replaying(monkeypatch)
    halves = estimate.timed_updates(learner, loader, 90.0)
    assert len(learner.shapes) > 1
    for half in halves:
        assert half.seconds == half.num_updates, "a second each"
        assert 45 <= half.seconds <= 2 * 45
    assert learner.most_queued <= 16


@pytest.mark.thorough
def test_the_command_tells_what_all_updates_take_and_leaves_the_run_alone(experiment, tmp_path, capsys):
    settings = ["training.max_steps=900", "training.keep_last=5", "training.keep_best=2", "training.precision=bf16"]
    assert train.main([str(experiment), f"run_dir={tmp_path / 'run'}", *settings, "--estimate"]) == 0
    speed, time, memory, disk = capsys.readouterr().out.splitlines()
    # The rest of this line depends on what else runs: see the next test.
    assert re.match(r"CPU, 1 thread, bf16: ([\d,]+ to )?[\d,]+ target tokens a second, measured in \d+ updates", speed)
    assert re.fullmatch(r"900 updates: about \d+ \w+, without the time of \d+ validations?", time)
    assert re.fullmatch(r"memory: [\d,]{3,} MB at the peak of these updates", memory), "PyTorch alone takes 100 MB"
    assert list(tmp_path.iterdir()) == []
    checkpoint = checkpoint_path(train_tiny(experiment, tmp_path / "run", "training.max_steps=1"), 1)
    size = sum((checkpoint / name).stat().st_size for name in ("model.safetensors", "training.safetensors"))
    assert disk == f"disk: a checkpoint takes {size / 1e6:,.0f} MB; the run keeps at most 7"


@pytest.mark.parametrize(
    ("seconds", "cores", "speed"),
    [
        (0.5, 0.0, "400 target tokens a second, measured in 6 updates"),
        (1.0, 0.0, "200 to 400 target tokens a second, measured in 6 updates"),
        (0.5, 1e6, "400 target tokens a second, measured in 6 updates; other programs use 1000000.0"),
    ],
    ids=["alone", "halves-differ", "beside-others"],
)
def test_an_estimate_says_if_halves_differ_or_others_take_cores(experiment, monkeypatch, seconds, cores, speed):
    """The time is that of the faster half, 3 updates of 200 tokens in half a second."""
    config = load_config(experiment, ["training.max_steps=1200"])
    learner = new_learner(config)
    loader = Loader(EncodedCorpus.load(Path(config.data_dir) / "train"), 200, 0, 1, "padded")
    halves = [estimate.Timed(3, 200, seconds), estimate.Timed(3, 200, 0.5)]
    monkeypatch.setattr(estimate, "timed_updates", lambda *_: halves)
    monkeypatch.setattr(estimate, "OtherPrograms", lambda: SimpleNamespace(cores=lambda: cores))
    first, time, *_ = estimate.estimate(learner, loader).splitlines()
    assert first.startswith(f"CPU, 1 thread, fp32: {speed}") and first.count("other programs") == (cores > 0)
    assert time.startswith("1,200 updates: about 3 min, without")


def test_an_estimate_leaves_the_weights_as_they_are(experiment):
    config = load_config(experiment)
    learner, layout = new_learner(config), "padded"
    loader = Loader(EncodedCorpus.load(Path(config.data_dir) / "train"), 200, 0, 1, layout)
    before = [weight.clone() for weight in learner.model.parameters()]
    estimate.timed_updates(learner, loader, 0.0)
    assert all(torch.equal(*both) for both in zip(before, learner.model.parameters(), strict=True))


def test_several_ranks_do_not_estimate(experiment, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ConfigError, match="--estimate is for one process"):
        train.main([str(experiment), "--estimate"])


def test_lack_of_memory_is_explained_for_an_estimate_too(experiment, monkeypatch, capsys):
    def learner(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(train, "build_learner", learner)
    status, error = status_and_error(train.main, experiment, "--estimate", capsys=capsys)
    assert status == 2 and error.startswith("error: out of memory: lower training.tokens_per_batch")
