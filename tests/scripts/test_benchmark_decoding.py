"""The decoding benchmark: how contenders are run, compared and told apart."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mode

import benchmark
import pytest
import torch
from benchmarks import decoding_race
from benchmarks.contenders import timed_decoding
from benchmarks.contenders.decoding import Decoder, ctranslate2, export, ours_by_ctranslate2
from benchmarks.decoding_process import Outcome, Pass, megabytes_of_session, run_passes, seconds_to_first_line
from benchmarks.decoding_race import GREEDY, Record, Texts, check_translations, summary
from benchmarks.environment import PeerError
from helpers.tiny import demo_pairs, renew_sums

import transformer_mt.export
from transformer_mt.decoding.translator import Translator
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.weights import model_weights, save_weights
from transformer_mt.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def model_dir(model_dir, tmp_path_factory):
    """A model with something else to say of each sentence: random, its last norm too."""
    directory = tmp_path_factory.mktemp("random") / "model"
    shutil.copytree(model_dir, directory)
    config, tokenizer = load_config(directory / "config.yaml"), Tokenizer.load(directory)
    torch.manual_seed(1)
    model = Transformer(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    weights = model_weights(model)
    weights[f"decoder.{config.model.decoder_layers - 1}.around_feed_forward.norm.weight"].normal_()
    # Bytes are never the best: ours writes them only where they spell characters, and CTranslate2 anywhere.
    pieces = tokenizer.target_pieces(range(tokenizer.target_vocab_size))
    weights["target_embedding.weight"][[piece.startswith("<0x") for piece in pieces]] = 0.0
    save_weights(weights, directory / "model.safetensors", {"tokenizer": tokenizer.digest})
    renew_sums(directory)
    return directory


@pytest.fixture(scope="module")
def exported(model_dir, tmp_path_factory):
    pytest.importorskip("ctranslate2")
    return export(model_dir, tmp_path_factory.mktemp("exported") / "fp32", "ctranslate2", "float32")


@pytest.fixture
def text(model_dir, tmp_path):
    """Sources of one length: translations that do not end by themselves then end alike everywhere."""
    pairs = demo_pairs(300)
    lengths = [len(ids) for ids in Tokenizer.load(model_dir).encode_source([source for source, _ in pairs])]
    chosen = [pair for pair, length in zip(pairs, lengths, strict=True) if length == mode(lengths)]
    paths = tmp_path / "test.en", tmp_path / "test.de"
    for path, side in zip(paths, zip(*chosen, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return paths


@pytest.fixture
def texts(model_dir, text):
    return decoding_race.read_texts(model_dir, text)


@pytest.fixture
def conditions(model_dir, texts, tmp_path):
    return decoding_race.write_texts(model_dir, texts, tmp_path / "race", threads=1)


def contender(name="x", precision="fp32", **changes):
    return replace(Decoder(name, precision, sys.executable, "decode_ours", Path("model")), **changes)


def record(lines, *rounds, width=GREEDY):
    """One pass: its lines, and its seconds in each round."""
    outcomes = [[Outcome(lines, seconds, seconds / 100)] for seconds in rounds]
    return Record([Pass(width, 32)], [lines], 5.0, outcomes, [3.0 * seconds for seconds in rounds])


def test_ratios_of_decoding_are_of_the_same_round_and_precision(model_dir):
    sources, lines = map(list, zip(*demo_pairs(20), strict=True))
    texts = Texts(sources, lines, Tokenizer.load(model_dir), "de")
    report = summary(
        {
            contender("ours"): record(lines, 2, 4, 6),
            contender("ours", "int8"): record(lines, 1, 1, 1),
            contender("ours, 1 worker"): record(lines, 4, 4, 4),
            contender("peer"): record(["nichts"] + lines[1:], 4, 4, 18),
            contender("peer", "int8"): record(lines, 10, 30, 20),
        },
        texts,
    )
    rows = {title: found["beams"][GREEDY] for title, found in report.items()}
    assert rows["peer, fp32"]["ratios"] == [2, 1, 3]
    assert rows["peer, fp32"]["ratio"] == 2
    assert rows["ours, 1 worker, fp32"]["ratios"] == [2, 1, 4 / 6]
    assert rows["peer, int8"]["ratios"] == [10, 30, 20]
    assert "ratio" not in rows["ours, fp32"]
    assert rows["peer, int8"]["sentences_per_second"] == 1
    pieces = sum(len(ids) - 1 for ids in texts.tokenizer.encode_target(lines))
    assert rows["peer, int8"]["tokens_per_second"] == pieces / 20
    assert rows["peer, int8"]["milliseconds_alone"] == 200
    assert rows["peer, int8"]["bleu"] == pytest.approx(100)
    assert rows["peer, fp32"]["same_lines"] == 0.95
    assert report["peer, int8"]["seconds_to_first_line"] == 60


def test_a_peer_with_other_greedy_translations_is_refused():
    lines = [str(number) for number in range(100)]
    ours = record(lines)
    check_translations(contender(), record(["x"] * 3 + lines[3:]), ours)
    other = record(["x"] * 4 + lines[4:])
    check_translations(contender(precision="int8"), other, ours)
    with pytest.raises(PeerError, match=r"x, fp32: of its greedy translations 96.0% are those of ours, less than 97%"):
        check_translations(contender(), other, ours)


def test_length_penalties_grow_alike_at_the_mean_length(texts, conditions):
    lengths = [len(ids) for ids in texts.tokenizer.encode_target(texts.reference)]
    length, alpha = sum(lengths) / len(lengths), conditions.job["length_penalty"]

    def growth(penalty):
        return math.log(penalty(length * 1.001) / penalty(length / 1.001))

    assert growth(lambda n: n ** conditions.job["length_exponent"]) == pytest.approx(
        growth(lambda n: ((5 + n) / 6) ** alpha), rel=1e-4
    )


def test_the_fastest_size_of_each_width_is_chosen():
    tried = {Pass(1, 16): 3.0, Pass(1, 32): 2.0, Pass(4, 16): 1.0, Pass(4, 32): 4.0}
    assert decoding_race.fastest({one: Outcome([], seconds, None) for one, seconds in tried.items()}) == [
        Pass(1, 32),
        Pass(4, 16),
    ]


def test_batches_by_length_hold_each_sentence_once_longest_first():
    sentences = ["abc", "a", "abcde", "ab", "abcd"]
    assert timed_decoding.batches_by_length(sentences, 2) == [[2, 4], [0, 3], [1]]


@pytest.mark.slow
def test_ctranslate2_and_ours_translate_alike(model_dir, exported, texts, conditions):
    """Each in a process of its own; the second runs CTranslate2 by our command."""
    expected = Translator.load(model_dir, "cpu").translate(texts.source, beam_size=1)
    assert len(set(expected)) > 3
    passes = [Pass(1, 7), Pass(3, 64)]
    for one in (ctranslate2(exported, "fp32", "float32", 1, 1), ours_by_ctranslate2(exported, 1)):
        outcomes, megabytes = run_passes(one, conditions, passes, alone=3, watch=True)
        assert decoding_race.one_spaced(outcomes[0].lines) == expected
        assert [len(outcome.lines) for outcome in outcomes] == [len(expected)] * 2
        assert all(0 < outcome.seconds_alone < outcome.seconds * 20 for outcome in outcomes)
        assert 20 < megabytes < 2000
        assert 0.02 < seconds_to_first_line(one, conditions, 1, 7) < 60


@pytest.mark.thorough
def test_a_failure_is_shown(conditions, exported):
    one = replace(ctranslate2(exported, "fp32", "no such type", 1, 1), precision="fp32")
    with pytest.raises(PeerError, match=r"CTranslate2, 1 × 1, fp32: it ended with status 1. .*\n(.*\n)*.*no such type"):
        run_passes(one, conditions, [Pass(1, 7)])
    with pytest.raises(PeerError, match="CTranslate2, 1 × 1, fp32: no line came, with status 1"):
        seconds_to_first_line(one, conditions, 1, 7)


def test_memory_that_processes_share_counts_once():
    code = """
import os, time
held = b"x" * 200_000_000
os.fork()
os.write(1, b"ready\\n")
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert [process.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
            assert 200 < megabytes_of_session(process.pid) < 260
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.stdout.read()  # until both have ended: only one of them is our child
    assert megabytes_of_session(process.pid) == 0


@pytest.mark.slow
def test_the_whole_race(model_dir, exported, text, tmp_path, capsys, monkeypatch):
    """Of two; what it prints is what it reports."""
    both = [
        replace(ours_by_ctranslate2(exported, 1), name="ours", sizes=(512,)),
        replace(ctranslate2(exported, "fp32", "float32", 1, 1), sizes=(4, 16)),
    ]
    monkeypatch.setattr(decoding_race, "line_up", lambda *arguments: both)
    path = tmp_path / "speed.json"
    words = ["decode", "--model", str(model_dir), "--text", *map(str, text), "--rounds", "1", "--threads", "1"]
    assert benchmark.main([*words, "--beam", "2", "--json", str(path)]) == 0
    report = json.loads(path.read_text(encoding="utf-8"))["decode"]
    printed = capsys.readouterr().out
    assert report["import_torch_seconds"] > 0.1
    peer = report["contenders"]["CTranslate2, 1 × 1, fp32"]
    assert set(peer["beams"]) == {"1", "2"}
    for row in peer["beams"].values():
        assert row["same_lines"] > 0.9
        assert row["batch"] in (4, 16)
        assert f"{row['sentences_per_second']:,.1f} {row['tokens_per_second']:>9,.0f}  {row['ratio']:.2f} (" in printed


@pytest.mark.thorough
def test_a_peer_that_cannot_run_is_found_before_anything_is_timed(model_dir, text, tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2")
    exported = tmp_path / "exported"
    assert transformer_mt.export.main([str(model_dir), str(exported), "--format", "ctranslate2"]) == 0
    able = replace(ours_by_ctranslate2(exported, 1), name="ours", sizes=(512,))
    unable = ctranslate2(exported, "fp32", "no such type", 1, 1)
    monkeypatch.setattr(decoding_race, "line_up", lambda *arguments: [able, unable])
    timed = []
    monkeypatch.setattr(decoding_race, "run_passes", lambda *arguments, **options: timed.append(arguments))
    with pytest.raises(PeerError, match="CTranslate2, 1 × 1, fp32: no line came, with status 1"):
        decoding_race.measure_decoding(model_dir, text, tmp_path, {}, [1], threads=1, rounds=1)
    assert not timed


@pytest.mark.parametrize("arguments", [["decode"], ["decode", "train", "--text", "a", "b"], ["--text", "a", "b"]])
def test_a_model_is_only_for_decode_and_needs_a_text(capsys, arguments):
    with pytest.raises(SystemExit):
        benchmark.main([*arguments, "--model", "x"])
    assert "decode needs --model MODEL_DIR and --text SOURCE REFERENCE, alone" in capsys.readouterr().err
