"""The script benchmark.py: what it times is the same on both sides, and its ratios are of the same round."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TINY

from transformer_mt.config import ModelConfig, TrainingConfig
from transformer_mt.data.batching import Batch
from transformer_mt.decoding.search import greedy, max_lengths
from transformer_mt.device import Device
from transformer_mt.models import dropout
from transformer_mt.training.loop import one_update
from transformer_mt.training.optimization import build_optimizer
from transformer_mt.vocabulary import BOS, EOS, PAD

SCRIPT = Path(__file__).parent.parent / "scripts" / "benchmark.py"
FP32 = Device(torch.device("cpu"), torch.float32, "CPU, fp32")


@pytest.fixture
def benchmark(monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def both(benchmark, tiny_model):
    """Our model and its peer, in fp32."""
    ours = tiny_model().float()
    return ours, benchmark.Peer(ours, ModelConfig(**TINY)).eval()


@pytest.fixture
def batch(sources, decoder_inputs):
    """Sentences of different lengths on both sides."""
    decoder_input_BT = decoder_inputs(6, 8)
    lengths_B1 = (decoder_input_BT != PAD).sum(dim=1, keepdim=True)
    labels_BT = decoder_input_BT.roll(-1, dims=1)
    labels_BT = labels_BT.scatter(1, lengths_B1 - 1, EOS).masked_fill(torch.arange(8) >= lengths_B1, PAD)
    return Batch(sources(6, 9), decoder_input_BT, labels_BT, torch.arange(6), int(lengths_B1.sum()))


def our_loss(ours, optimizer, batch, settings):
    update = one_update(ours, optimizer, [batch], settings, FP32)
    return update.smoothed / update.num_labels


def test_updates_of_the_peer_are_ours(benchmark, both, batch):
    """The first loss says that the function is the same; the others, that gradients and steps are."""
    ours, peer = both
    settings = TrainingConfig(peak_lr=0.01)
    our_optimizer, peer_optimizer = build_optimizer(ours, settings), build_optimizer(peer, settings)
    losses = []
    for _ in range(4):
        expected = our_loss(ours, our_optimizer, batch, settings)
        loss = benchmark.peer_update(peer, peer_optimizer, batch, settings, FP32)
        torch.testing.assert_close(loss, expected, rtol=0.0, atol=1e-4)
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1


def test_peer_drops_out_where_ours_does(benchmark, tiny_model, batch, monkeypatch):
    """Dropout that scales instead, as often as it is applied."""
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, p, training, inplace: x * (1 - p) if training else x)
    monkeypatch.setattr(dropout, "scaled_mask", lambda x, probability: torch.full_like(x, 1 - probability))
    ours = tiny_model(dropout=0.3).float()
    peer = benchmark.Peer(ours, ModelConfig(**TINY | {"dropout": 0.3}))
    settings = TrainingConfig()
    without = our_loss(ours, build_optimizer(ours, TrainingConfig(peak_lr=1e-9)), batch, settings)
    expected = our_loss(ours.train(), build_optimizer(ours, settings), batch, settings)
    loss = benchmark.peer_update(peer.train(), build_optimizer(peer, settings), batch, settings, FP32)
    torch.testing.assert_close(loss, expected, rtol=0.0, atol=1e-4)
    assert abs(expected - without) > 0.01


def test_greedy_of_the_peer_is_ours(both, sources):
    ours, peer = both
    source_BS = sources(12, 9)
    limits = max_lengths(source_BS, 5, TINY["max_positions"])
    expected = [hypothesis.tokens for hypothesis in greedy(ours, source_BS, limits)]
    assert len(set(map(tuple, expected))) > 6
    assert peer.greedy(source_BS, limits) == expected


def test_ratios_are_of_the_same_round(benchmark, monkeypatch):
    now, calls = 0.0, []
    seconds = {"ours, x": [9, 1, 1, 2], "peer, x": [9, 2, 4, 10], "ours, y": [9, 1, 3, 5]}

    def work(name):
        def take_time():
            nonlocal now
            now += seconds[name][calls.count(name)]
            calls.append(name)
            return {"things": 6}

        return take_time

    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: now)
    results = benchmark.compete({name: work(name) for name in seconds}, rounds=3, on_gpu=False)
    x, peer, y = seconds
    assert calls == [x, peer, y, x, peer, y, y, peer, x, x, peer, y]
    assert results[x]["seconds"] == [1, 1, 2]
    assert results[x]["ratios"] == [2, 4, 5]
    assert results[x]["ratio"] == 4
    assert results[y]["per_second"] == {"things": 2}
    assert "ratio" not in results[peer]
    assert "ratio" not in results[y]


def test_prints_and_writes_what_it_measured(benchmark, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(benchmark, "NUM_PAIRS", 500)
    path = tmp_path / "new" / "speed.json"
    assert benchmark.main(["--shape", "tiny", "--rounds", "1", "--threads", "1", "--json", str(path)]) == 0
    report = json.loads(path.read_text(encoding="utf-8"))
    assert {"processor", "devices", "peer", "model", "rounds", "data", "train", "decode"} <= report.keys()
    assert report["data"]["ours"]["per_second"]["pairs"] > 0
    assert report["train"]["ours, fp32"]["ratio"] > 0
    assert set(report["decode"]) == {"ours, greedy", "peer, greedy", "ours, beam 4"}
    printed = capsys.readouterr().out
    assert f"{report['decode']['ours, greedy']['ratio']:.2f} times the peer" in printed
    assert report["processor"] in printed


def test_a_peer_that_computes_something_else_is_not_timed(benchmark, monkeypatch):
    copied = benchmark.Peer.__init__

    def changed(self, ours, config):
        copied(self, ours, config)
        with torch.no_grad():
            self.transformer.decoder.layers[0].multihead_attn.out_proj.weight.mul_(-2)

    monkeypatch.setattr(benchmark, "NUM_PAIRS", 500)
    monkeypatch.setattr(benchmark.Peer, "__init__", changed)
    for name in ("train", "decode"):
        with pytest.raises(AssertionError):
            benchmark.main([name, "--shape", "tiny", "--rounds", "1", "--threads", "1"])


@pytest.mark.parametrize("arguments", [["speed"], ["--rounds", "0"], ["--threads", "-1"]])
def test_mistakes_are_named(benchmark, capsys, arguments):
    with pytest.raises(SystemExit):
        benchmark.main(arguments)
    assert "name data, train or decode; --rounds is at least 1" in capsys.readouterr().err


def test_synthetic_corpus_is_of_both_lengths(benchmark, monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "NUM_PAIRS", 2000)
    corpus = benchmark.synthetic_corpus(tmp_path, 50)
    assert len(corpus) == 2000
    assert 24 < np.diff(corpus.target.offsets).mean() < 30
    assert corpus.target.ids.min() == EOS > BOS
    assert (np.diff(corpus.source.offsets) != np.diff(corpus.target.offsets)).mean() > 0.5
