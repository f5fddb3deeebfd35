"""The script benchmark.py: what it times is the same on both sides, and its ratios are of the same round."""

import json
import re
import sys
from dataclasses import replace
from itertools import islice

import benchmark
import benchmark_data
import numpy as np
import pytest
import torch
from benchmark_data import nn_transformer_weights, padded_batches, random_rows, text_rows, write_race
from benchmark_plain import NnTransformer, adam, marian_weights
from benchmark_plain import one_update as one_plain_update
from benchmark_process import Contender, PeerError, Race, Result, read_log, run
from benchmark_train import IMPORTED, OWN_LOG, check_first_loss, summary
from benchmark_trainers import TRAINERS
from conftest import TINY

from transformer_mt.config import ModelConfig, TrainingConfig
from transformer_mt.data.encoded import EncodedCorpus, write_encoded
from transformer_mt.data.loading import Loader, Position
from transformer_mt.decoding.search import greedy, max_lengths
from transformer_mt.device import Device
from transformer_mt.models import dropout
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.learner import new_learner
from transformer_mt.training.update import one_update
from transformer_mt.vocabulary import BOS, EOS, PAD

CPU = torch.device("cpu")
FP32 = Device(CPU, torch.float32, "CPU, fp32")
VOCAB_SIZE = 11


@pytest.fixture
def race(tmp_path):
    training = TrainingConfig(tokens_per_batch=60, peak_lr=0.01)
    return Race(tmp_path, ModelConfig(**TINY), training, VOCAB_SIZE, warm_up=2, updates=2, threads=1, device="cpu")


@pytest.fixture
def corpus(race):
    """Sentences of 1 to 9 ids on either side."""
    random = np.random.default_rng(1)
    rows = [[[*random.integers(EOS + 1, VOCAB_SIZE, random.integers(9)), EOS] for _ in range(2)] for _ in range(60)]
    write_encoded(race.directory / "corpus", rows, VOCAB_SIZE, VOCAB_SIZE)
    return EncodedCorpus.load(race.directory / "corpus")


@pytest.fixture
def both(tiny_model):
    """A function that makes our model and its peer, in fp32."""

    def build(**settings):
        ours, config = tiny_model(**settings).float(), ModelConfig(**TINY | settings)
        peer = NnTransformer(config.model_dump(), VOCAB_SIZE)
        peer.load_state_dict(nn_transformer_weights(ours, config, VOCAB_SIZE))
        return ours, peer.eval()

    return build


def our_batches(corpus, race):
    """Those of the first updates."""
    loader = Loader(corpus, race.training.tokens_per_batch, 0, race.training.seed)
    return (loader.batch(update[0], 1, 0) for update, _ in loader.updates(Position()))


def losses(ours, peer, corpus, race, rate):
    """Ours before each of our updates, and theirs before each of theirs, on the same batches."""
    settings = race.training
    learner, peer_optimizer = new_learner(ours, settings, "padded", FP32, Ranks()), adam(peer)
    for group in peer_optimizer.param_groups:
        group["lr"] = rate
    for batch, padded in zip(our_batches(corpus, race), padded_batches(corpus, race), strict=False):
        update = one_update(learner, [batch], rate, 1, settings, Ranks())
        loss = one_plain_update(peer, peer_optimizer, padded, settings.label_smoothing, CPU, "fp32")
        yield update.smoothed / update.num_labels, loss


def test_updates_of_the_peer_are_ours(both, corpus, race):
    """The first loss says that the function is the same; the others, that gradients and steps are."""
    ours, peer = both()
    found = list(losses(ours, peer, corpus, race, rate=0.01))
    assert len(found) == race.last_update == 4
    for ours_before, theirs_before in found:
        torch.testing.assert_close(theirs_before, ours_before, rtol=0.0, atol=1e-4)


def test_peer_drops_out_where_ours_does(both, corpus, race, monkeypatch):
    """Dropout that scales instead, as often as it is applied."""
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, p, training, inplace: x * (1 - p) if training else x)
    monkeypatch.setattr(dropout, "scaled_mask", lambda x, probability: torch.full_like(x, 1 - probability))
    ours, peer = both(dropout=0.3)
    without, _ = next(losses(ours, peer, corpus, race, rate=0.0))
    expected, loss = next(losses(ours.train(), peer.train(), corpus, race, rate=0.0))
    torch.testing.assert_close(loss, expected, rtol=0.0, atol=1e-4)
    assert abs(expected - without) > 0.01


def test_greedy_of_the_peer_is_ours(both, sources):
    ours, peer = both()
    source_BS = sources(12, 9)
    limits = max_lengths(source_BS, 5, TINY["max_positions"])
    expected = [hypothesis.tokens for hypothesis in greedy(ours, source_BS, limits)]
    assert len(set(map(tuple, expected))) > 6
    assert benchmark.peer_greedy(peer, source_BS, limits) == expected


def test_every_weight_has_its_place_in_marian(both):
    """That the places are right is seen when Marian's first loss is ours."""
    ours, _ = both()
    weights = nn_transformer_weights(ours, ModelConfig(**TINY), VOCAB_SIZE)
    renamed = marian_weights(weights)
    layers = [value for name, value in renamed.items() if ".layers." in name]
    given = [value for name, value in weights.items() if ".layers." in name]
    assert sum(value.numel() for value in layers) == sum(value.numel() for value in given)
    query, key, value = (renamed[f"marian.model.decoder.layers.2.encoder_attn.{x}_proj.weight"] for x in "qkv")
    expected = weights["transformer.decoder.layers.2.multihead_attn.in_proj_weight"]
    assert torch.equal(torch.cat([query, key, value]), expected)


def test_peers_see_the_batches_of_ours(corpus, race):
    """Padded: each row the pair's labels, and what is known before each of them."""
    padded = padded_batches(corpus, race)
    assert len(padded) == race.last_update
    batches = islice(our_batches(corpus, race), 4)
    for batch, (source_BS, decoder_input_BT, labels_BT) in zip(batches, padded, strict=True):
        assert int((labels_BT != PAD).sum()) == batch.num_labels
        for row, pair in enumerate(batch.pairs_B.tolist()):
            for side, ids in ((corpus.source, source_BS[row]), (corpus.target, labels_BT[row])):
                expected = side.ids[side.offsets[pair] : side.offsets[pair + 1]].tolist()
                assert ids.tolist() == expected + [PAD] * (len(ids) - len(expected))
            labels = [i for i in labels_BT[row].tolist() if i != PAD]
            assert [i for i in decoder_input_BT[row].tolist() if i != PAD] == [BOS, *labels[:-1]]


def test_ratios_are_of_the_same_round(monkeypatch):
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


RESULT = Result(100.0, 5.0, None, 3.0, 2.0, 6.5)


def contender(name="x", precision="fp32", command=("true",), progress=OWN_LOG):
    return Contender(name, precision, command, IMPORTED, progress)


def test_ratios_of_training_are_of_the_same_round_and_precision():
    def results(*speeds):
        return [replace(RESULT, tokens_per_second=speed, megabytes=speed) for speed in speeds]

    report = summary({
        contender("ours"): results(100, 200, 300),
        contender("ours", "bf16"): results(1000, 1000, 1000),
        contender("peer"): results(50, 200, 100),
        contender("peer", "bf16"): results(500, 100, 200),
    })  # fmt: skip
    assert report["peer, fp32"]["ratios"] == [2, 1, 3]
    assert report["peer, fp32"]["ratio"] == 2
    assert report["peer, bf16"]["ratios"] == [2, 10, 5]
    assert report["peer, bf16"]["tokens_per_second"] == 200
    assert report["peer, bf16"]["megabytes"] == 500
    assert "ratio" not in report["ours, fp32"]


# What the trainers printed, shortened: each after the seconds at which it came here, and its speed.
FAIRSEQ = """\
2026-11-21 11:30:12 | INFO | fairseq.tasks.text_to_speech | Please install tensorboardX: pip install tensorboardX
2026-11-21 11:30:13 | INFO | fairseq_cli.train | task: TranslationTask
2026-11-21 11:30:14 | INFO | train_inner | {"epoch": 1, "update": 0.008, "loss": "13.558", "wps": "0", "ups": "0", \
"wpb": "3808", "bsz": "224", "num_updates": "1", "lr": "0.0001", "gnorm": "0.637", "train_wall": "0", "wall": "1"}
2026-11-21 11:30:14 | INFO | train_inner | {"epoch": 1, "update": 0.015, "loss": "13.585", "wps": "14490.3", \
"ups": "3.66", "wpb": "3961", "bsz": "272", "num_updates": "2", "lr": "0.0001", "gnorm": "0.736", "wall": "2"}
2026-11-21 11:30:14 | INFO | train_inner | {"epoch": 1, "update": 0.023, "loss": "13.607", "wps": "29686.5", \
"ups": "7.82", "wpb": "3798", "bsz": "160", "num_updates": "3", "lr": "0.0001", "gnorm": "0.619", "wall": "2"}
2026-11-21 11:30:15 | INFO | train_inner | {"epoch": 1, "update": 0.03, "loss": "13.555", "wps": "24574.7", \
"ups": "9.56", "wpb": "2571", "bsz": "208", "num_updates": "4", "lr": "0.0001", "gnorm": "0.762", "wall": "2"}
2026-11-21 11:30:15 | INFO | train | {"epoch": 1, "train_wps": "23576.2", "train_ups": "6.54", "train_wpb": \
"3636.2", "train_num_updates": "6", "train_lr": "0.0001", "train_gnorm": "0.717", "train_train_wall": "1"}"""
EOLE = """\
  from eole.ops import _CPP_OPS_AVAILABLE, gelu_and_mul, silu_and_mul, gelu_tanh_and_mul
[2026-11-21 11:30:23,489 INFO] Logging initialized (log_file: )
[2026-11-21 11:30:33,450 INFO] Step  1/    4; acc: 0.0; ppl: 8048.52; xent: 8.99; aux: 0.000; mtp: 0.000; \
attn_ent: 0.000; lr: 1.00e-04; sents:     341; bsz: 3751/3447/341; 419/385 tok/s;      9 sec;
[2026-11-21 11:30:33,587 INFO] Step  2/    4; acc: 0.0; ppl: 8038.66; xent: 8.99; aux: 0.000; mtp: 0.000; \
attn_ent: 0.000; lr: 1.00e-04; sents:     240; bsz: 3360/3840/240; 24411/27898 tok/s;      9 sec;
[2026-11-21 11:30:33,788 INFO] Step  3/    4; acc: 0.0; ppl: 8018.73; xent: 8.99; aux: 0.000; mtp: 0.000; \
attn_ent: 0.000; lr: 1.00e-04; sents:     186; bsz: 3162/3743/186; 15813/18718 tok/s;      9 sec;
[2026-11-21 11:30:33,917 INFO] Step  4/    4; acc: 0.0; ppl: 8020.59; xent: 8.99; aux: 0.000; mtp: 0.000; \
attn_ent: 0.000; lr: 1.00e-04; sents:     204; bsz: 3264/3876/204; 25239/29972 tok/s;      9 sec;
[2026-11-21 11:30:35,152 INFO] Saving optimizer and weights to step_4, and symlink to eole.model"""
JOEYNMT = """\
Matplotlib is building the font cache; this may take a moment.
2026-11-21 11:31:56,504 - INFO - root - Hello! This is Joey-NMT (version 2.3.0).
2026-11-21 11:31:59,222 - INFO - joeynmt.training - Epoch   1, Step:        1, Batch Loss:     7.759456, \
Batch Acc: 0.000000, Tokens per Sec:     1648, Lr: 0.000000
2026-11-21 11:31:59,625 - INFO - joeynmt.training - Epoch   1, Step:        2, Batch Loss:     7.756745, \
Batch Acc: 0.000000, Tokens per Sec:     3868, Lr: 0.000000
2026-11-21 11:31:59,939 - INFO - joeynmt.training - Epoch   1, Step:        3, Batch Loss:     7.757662, \
Batch Acc: 0.000000, Tokens per Sec:     5145, Lr: 0.000000
2026-11-21 11:32:00,350 - INFO - joeynmt.training - Epoch   1, Step:        4, Batch Loss:     7.757502, \
Batch Acc: 0.000000, Tokens per Sec:     4848, Lr: 0.000000
2026-11-21 11:32:00,351 - INFO - joeynmt.training - Training ended since maximum num. of updates 4 was reached."""
SOCKEYE = """\
/site-packages/torch/jit/_trace.py:1000: DeprecationWarning: `torch.jit.trace` is deprecated.
[INFO:sockeye.utils] Sockeye: 3.1.34, commit 4c30942ddb523533bccb4d2cbb3e894e45b1db93, path __init__.py
[INFO:sockeye.training] E=0 B=2	s/sec=2717.72 tok/sec=51564.73 u/sec=7.99	ppl=7979.424139
[INFO:sockeye.training] E=0 B=3	s/sec=1338.59 tok/sec=25086.83 u/sec=7.87	ppl=7971.431543
[INFO:sockeye.training] E=0 B=4	s/sec=960.11 tok/sec=18100.93 u/sec=5.65	ppl=7962.423021
[INFO:sockeye.training] Checkpoint [1]	Updates=4 Epoch=0 Samples=1106 Time-cost=1.004 Updates/sec=5.978"""
OURS = """\
imported
update 1: 5032.0 target tokens/s
update 2: 5122.8 target tokens/s
update 4: 765.3 target tokens/s
GPU megabytes: 123
first loss: 9.607031"""


@pytest.fixture
def trainers(race):
    """Each with its log, the speeds of its timed updates, and the number of the first update that it tells of."""
    for name, text in {"pieces.txt": "a\nb\n", "train.source": "a b\n"}.items():
        (race.directory / name).write_text(text, encoding="utf-8")
    (race.directory / "fairseq").mkdir()  # as if preprocessed
    logs = {"fairseq": FAIRSEQ, "eole": EOLE, "joeynmt": JOEYNMT, "sockeye": SOCKEYE}
    speeds = {
        "fairseq": [29686.5, 24574.7],
        "eole": [18718, 29972],
        "joeynmt": [5145, 4848],
        "sockeye": [25086.83, 18100.93],
    }
    assert logs.keys() == TRAINERS.keys()
    return [(TRAINERS[name]("python", "fp32", race), logs[name], speeds[name]) for name in TRAINERS]


def timed(text):
    """Lines that come after 0, 1, 3, 6, 10 … seconds."""
    return [(at * (at + 1) / 2, line) for at, line in enumerate(text.splitlines())]


def test_logs_of_the_trainers_are_understood(trainers, race):
    for trainer, log, (third, fourth) in trainers:
        result = read_log(trainer, timed(log), race, kilobytes=2000)
        lines = [line for _, line in timed(log)]
        at = next(i for i, line in enumerate(lines) if trainer.progress.search(line))
        last = at + 3 if trainer.name != "Sockeye" else at + 2  # Sockeye says nothing of its first update
        expected = (third * (last - 1) + fourth * last) / (2 * last - 1)
        assert result.tokens_per_second == pytest.approx(expected), trainer.name
        assert result.seconds_to_first_update == at * (at + 1) / 2
        assert result.seconds_after_imports == at * (at + 1) / 2 - 1
        assert (result.megabytes, result.gpu_megabytes, result.first_loss) == (2, None, None)


def test_our_own_log_is_understood(race):
    result = read_log(contender(), timed(OURS), race, kilobytes=3000)
    assert result == Result(pytest.approx(765.3), 3.0, 123.0, 1.0, 1.0, 9.607031)


def test_a_log_that_stops_early_or_says_nothing_is_refused(trainers, race):
    for trainer, log, _ in [*trainers, (contender(), OURS, None)]:
        lines = timed(log)
        last = max(i for i, (_, line) in enumerate(lines) if trainer.progress.search(line))
        for bad in (lines[:last], lines[last:], []):
            with pytest.raises(ValueError, match="does not tell of its imports and of 4 updates"):
                read_log(trainer, bad, race, kilobytes=0)


def python(code):
    return contender(command=(sys.executable, "-c", code))


def test_a_contender_runs_alone_under_the_conditions_of_all(race, monkeypatch):
    """Its environment, where it runs, and the memory that it held; nothing of ours is on its path."""
    monkeypatch.setenv("PYTHONPATH", "/ours")
    code = """
import os
words = [os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "MALLOC_MMAP_THRESHOLD_", "PYTHONPATH")]
print(*words, os.getcwd())
print("imported")
held = b"x" * 300_000_000
for update in (1, 2, 4):
    print(f"update {update}: 10.0 target tokens/s")
print(f"first loss: {len(words)}")
"""
    result = run(python(code), race)
    assert 300 < result.megabytes < 340
    assert 0 < result.seconds_after_imports < result.seconds_to_first_update
    assert (result.tokens_per_second, result.first_loss) == (10, 3)
    with pytest.raises(PeerError, match=re.escape(f"\n  1 4294967296  {race.directory}\n")):
        run(python(code + "raise SystemExit(3)"), race)
    own = replace(python(code + "raise SystemExit(3)"), pythonpath="/theirs")
    with pytest.raises(PeerError, match=r"x, fp32: it ended with status 3.*\n  1 4294967296 /theirs "):
        run(own, race)


def test_another_first_loss_is_refused():
    same = replace(RESULT, first_loss=6.50009)
    check_first_loss(contender(), same, RESULT)
    check_first_loss(contender(), replace(RESULT, first_loss=None), RESULT)
    with pytest.raises(PeerError, match=r"x, fp32: the first loss is 6.500110 and ours 6.500000"):
        check_first_loss(contender(), replace(RESULT, first_loss=6.50011), RESULT)


ONCE = ["--shape", "tiny", "--rounds", "1", "--threads", "1", "--warm-up", "1", "--updates", "1"]


def test_prints_and_writes_what_it_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(benchmark_data, "NUM_PAIRS", 500)
    path = tmp_path / "new" / "speed.json"
    assert benchmark.main([*ONCE, "--json", str(path)]) == 0
    report = json.loads(path.read_text(encoding="utf-8"))
    assert {"processor", "device", "model", "rounds", "data", "train", "decode"} <= report.keys()
    assert report["data"]["ours"]["per_second"]["pairs"] > 0
    assert {"ours, fp32", "nn.Transformer, fp32"} <= report["train"].keys()
    for row in report["train"].values():
        assert row["first_loss"] == pytest.approx(report["train"]["ours, fp32"]["first_loss"], abs=1e-4)
        assert row["megabytes"] > 100
    assert set(report["decode"]) == {"ours, greedy", "peer, greedy", "ours, beam 4"}
    printed = capsys.readouterr().out
    assert f"{report['decode']['ours, greedy']['ratio']:.2f} times the peer" in printed
    assert f"{report['train']['nn.Transformer, fp32']['ratio']:.2f} (" in printed
    assert report["processor"] in printed


def test_a_peer_that_computes_something_else_is_not_timed(monkeypatch):
    def changed(*arguments):
        weights = nn_transformer_weights(*arguments)
        name = "transformer.decoder.layers.0.multihead_attn.out_proj.weight"
        return weights | {name: -2 * weights[name]}

    monkeypatch.setattr(benchmark_data, "NUM_PAIRS", 500)
    monkeypatch.setattr(benchmark_data, "nn_transformer_weights", changed)
    monkeypatch.setattr(benchmark, "nn_transformer_weights", changed)
    with pytest.raises(PeerError, match=r"nn.Transformer, fp32: the first loss is .* does not compute the same"):
        benchmark.main(["train", *ONCE])
    with pytest.raises(AssertionError):
        benchmark.main(["decode", *ONCE])


@pytest.mark.parametrize("arguments", [["speed"], ["--rounds", "0"], ["--threads", "-1"], ["--updates", "-1"]])
def test_mistakes_are_named(capsys, arguments):
    with pytest.raises(SystemExit):
        benchmark.main(arguments)
    assert "name data, train or decode; --rounds is at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("peer", ["marian=" + sys.executable, "eole=/no/such/python", "eole"])
def test_a_peer_is_a_known_name_and_a_python(capsys, peer):
    with pytest.raises(SystemExit):
        benchmark.main(["--peer", peer])
    assert f"{peer}: give NAME=PYTHON, NAME of huggingface, fairseq, eole, joeynmt, sockeye" in capsys.readouterr().err


def test_random_words_are_of_both_lengths(monkeypatch):
    monkeypatch.setattr(benchmark_data, "NUM_PAIRS", 2000)
    rows = list(random_rows(50))
    sources, targets = zip(*rows, strict=True)
    assert len(rows) == 2000
    assert 24 < np.mean([len(target) for target in targets]) < 30
    assert min(map(min, targets)) == EOS > BOS
    assert all(ids.index(EOS) == len(ids) - 1 for ids in targets)
    assert np.mean([len(s) != len(t) for s, t in rows]) > 0.5
    assert len(set(map(len, sources))) > 50


def test_text_is_given_to_all_in_the_same_pieces(race, tmp_path):
    english, german = tmp_path / "train.en", tmp_path / "train.de"
    numbers = [f"{i} {i * 7919}" for i in range(200)]
    english.write_text(
        "".join(f"A dog sees {n}.\n" for n in numbers) + "\nOne " + "long " * 200 + "\n", encoding="utf-8"
    )
    german.write_text("".join(f"Ein Hund sieht {n}.\n" for n in numbers) + "Leer.\nKurz.\n", encoding="utf-8")
    race = replace(race, vocab_size=300, training=TrainingConfig(tokens_per_batch=400))
    write_race(race, [english, german])
    _, pieces = text_rows(english, german, 300)
    corpus = EncodedCorpus.load(race.directory / "corpus")
    assert (race.directory / "pieces.txt").read_text(encoding="utf-8").splitlines() == pieces[EOS + 1 :]
    assert len(pieces) == 300
    for name, language, first in (("source", corpus.source, "A dog sees"), ("target", corpus.target, "Ein Hund sieht")):
        lines = (race.directory / f"train.{name}").read_text(encoding="utf-8").splitlines()
        text = ["".join(line.split()).replace("▁", " ").strip() for line in lines]
        assert text == [f"{first} {n}." for n in numbers]
        assert sum(len(line.split()) + 1 for line in lines) == len(language.ids)
        assert (race.directory / f"valid.{name}").read_text(encoding="utf-8").splitlines() == lines[:100]
