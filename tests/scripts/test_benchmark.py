"""The script benchmark.py: what it times is the same on both sides, and its ratios are of the same round."""

import json
import sys
from dataclasses import replace

import benchmark
import numpy as np
import pytest
import torch
from benchmarks import training_text
from benchmarks.contenders.train_plain import NnTransformer, adam, marian_weights
from benchmarks.contenders.train_plain import one_update as one_plain_update
from benchmarks.environment import PeerError
from benchmarks.training_process import Race
from benchmarks.training_text import nn_transformer_weights, padded_batches, random_rows, text_rows, write_race
from conftest import TINY

from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.kernels import matmul
from transformer_mt.kernels.device import Device, choose_device
from transformer_mt.preparing.shards import write_encoded
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.loop import one_update
from transformer_mt.training.run.beginning import new_learner

CPU = torch.device("cpu")
FP32 = Device(CPU, torch.float32, "CPU, fp32")
VOCAB_SIZE = 11


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    """The script itself takes a GPU where there is one."""
    monkeypatch.setattr(benchmark, "choose_device", lambda name, *others: choose_device("cpu", *others))


@pytest.fixture
def race(tmp_path):
    training = TrainingConfig(tokens_per_batch=60, peak_lr=0.01)
    return Race(
        tmp_path, TransformerConfig(**TINY), training, VOCAB_SIZE, warm_up=2, updates=2, threads=1, device="cpu"
    )


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
        ours, config = tiny_model(**settings).float(), TransformerConfig(**TINY | settings)
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
        update = one_update(learner, [batch], rate, 1)
        loss = one_plain_update(peer, peer_optimizer, padded, settings.label_smoothing, CPU, "fp32")
        yield update.numbers.smoothed / update.num_labels, loss


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
    monkeypatch.setattr(matmul, "scaled_mask", lambda x, probability: torch.full_like(x, 1 - probability))
    ours, peer = both(dropout=0.3)
    without, _ = next(losses(ours, peer, corpus, race, rate=0.0))
    expected, loss = next(losses(ours.train(), peer.train(), corpus, race, rate=0.0))
    torch.testing.assert_close(loss, expected, rtol=0.0, atol=1e-4)
    assert abs(expected - without) > 0.01


def test_every_weight_has_its_place_in_marian(both):
    """That the places are right is seen when Marian's first loss is ours."""
    ours, _ = both()
    weights = nn_transformer_weights(ours, TransformerConfig(**TINY), VOCAB_SIZE)
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
    for batch, (source_BS, decoder_input_BT, labels_BT) in zip(our_batches(corpus, race), padded, strict=False):
        assert int((labels_BT != PAD).sum()) == batch.num_labels
        for row, pair in enumerate(batch.pairs_B.tolist()):
            for side, ids in ((corpus.source, source_BS[row]), (corpus.target, labels_BT[row])):
                expected = side.ids[side.offsets[pair] : side.offsets[pair + 1]].tolist()
                assert ids.tolist() == expected + [PAD] * (len(ids) - len(expected))
            labels = [i for i in labels_BT[row].tolist() if i != PAD]
            assert [i for i in decoder_input_BT[row].tolist() if i != PAD] == [BOS, *labels[:-1]]


ONCE = [*"--shape tiny --rounds 1 --threads 1 --warm-up 1 --updates 1 --device cpu".split()]


@pytest.mark.slow
def test_prints_and_writes_what_it_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(training_text, "NUM_PAIRS", 500)
    path = tmp_path / "new" / "speed.json"
    assert benchmark.main([*ONCE, "--json", str(path)]) == 0
    report = json.loads(path.read_text(encoding="utf-8"))
    assert {"processor", "device", "model", "rounds", "data", "train"} <= report.keys()
    assert report["data"]["pairs_per_second"] > 0
    assert {"ours, fp32", "nn.Transformer, fp32"} <= report["train"].keys()
    for row in report["train"].values():
        assert row["first_loss"] == pytest.approx(report["train"]["ours, fp32"]["first_loss"], abs=1e-4)
        assert row["megabytes"] > 100
    printed = capsys.readouterr().out
    assert f"{report['train']['nn.Transformer, fp32']['ratio']:.2f} (" in printed
    assert report["processor"] in printed


@pytest.mark.slow
def test_a_peer_that_computes_something_else_is_not_timed(monkeypatch):
    def changed(*arguments):
        weights = nn_transformer_weights(*arguments)
        name = "transformer.decoder.layers.0.multihead_attn.out_proj.weight"
        return weights | {name: -2 * weights[name]}

    monkeypatch.setattr(training_text, "NUM_PAIRS", 500)
    monkeypatch.setattr(training_text, "nn_transformer_weights", changed)
    with pytest.raises(PeerError, match=r"nn.Transformer, fp32: the first loss is .* does not compute the same"):
        benchmark.main(["train", *ONCE])


@pytest.mark.parametrize("arguments", [["speed"], ["--rounds", "0"], ["--threads", "-1"], ["--updates", "-1"]])
def test_mistakes_are_named(capsys, arguments):
    with pytest.raises(SystemExit):
        benchmark.main(arguments)
    assert "give data, train, decode or prepare; --rounds must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare"], "prepare needs --text SOURCE TARGET"),
        (["train", "--precision", "fp16"], "--precision fp16 is only for decode"),
        (["--precision", "fp16"], "--precision fp16 is only for decode"),
        (["--precision", "int8"], "--precision int8 is only for decode"),
    ],
)
def test_precisions_that_do_not_go_together_are_named(capsys, arguments, message):
    with pytest.raises(SystemExit):
        benchmark.main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("peer", ["marian=" + sys.executable, "eole=/no/such/python", "eole"])
def test_a_peer_is_a_known_name_and_a_python(capsys, peer):
    with pytest.raises(SystemExit):
        benchmark.main(["--peer", peer])
    assert f"{peer}: give NAME=PYTHON, NAME of huggingface, eole" in capsys.readouterr().err


def test_random_words_are_of_both_lengths(monkeypatch):
    monkeypatch.setattr(training_text, "NUM_PAIRS", 2000)
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
