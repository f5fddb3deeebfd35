"""The measurements on a GPU: what is written when, how the command keeps within its time, and a trial of all parts."""

import json
import os
import signal
import subprocess
import sys

import pytest
from benchmarks import gpu
from benchmarks.environment import PeerError
from benchmarks.gpu_profile import Event, busy, times
from helpers.tiny import ROOT, demo_pairs, status_and_error

from transformer_mt.storage.files import read_json

TRIAL = ["--device", "cpu", "--shape", "tiny", "--rounds", "1"]


@pytest.fixture
def now(monkeypatch):
    """A clock that a test moves."""
    at = [0.0]
    monkeypatch.setattr(gpu.time, "monotonic", lambda: at[0])
    return at


@pytest.fixture
def report(tmp_path, now):
    return gpu.Report(tmp_path / "new" / "gpu.json", {"device": "none"}, minutes=3)


def taking(now, seconds, made):
    """A measurement that takes these seconds, and notes how many were left."""

    def measure(left):
        now[0] += seconds
        made.append(left)
        return {"value": seconds}

    return measure


def test_no_measurement_begins_that_would_not_end_in_time(report, now):
    """Of 180 seconds, b leaves 80: not enough for c, which is of a new kind, but for d, which is like a."""
    made = []
    for name, kind, seconds in (("a", "x", 40), ("b", "y", 60), ("c", "z", 1), ("d", "x", 45), ("e", "x", 1)):
        report.measure(name, taking(now, seconds, made), kind)
    assert made == [180, 140, 80]
    written = read_json(report.path)
    assert list(written["measurements"]) == ["a", "b", "d"]
    assert written["not_measured"] == ["c", "e"]
    assert written["device"] == "none"
    assert not report.complete


def test_what_fails_is_told_and_stops_nothing(report, now, capsys):
    def fails(error):
        def measure(left):
            raise error

        return measure

    report.measure("a", fails(PeerError("no memory")))
    report.measure("b", fails(ValueError("NaN")))
    report.measure("c", taking(now, 1, []))
    assert read_json(report.path)["failed"] == {"a": "no memory", "b": "ValueError: NaN"}
    assert list(read_json(report.path)["measurements"]) == ["c"]
    assert "a: failed. no memory" in capsys.readouterr().out
    assert not report.complete


def test_what_was_measured_is_kept_when_the_next_measurement_is_interrupted(report, now):
    def interrupted(left):
        raise KeyboardInterrupt

    report.measure("a", taking(now, 1, []))
    with pytest.raises(KeyboardInterrupt):
        report.measure("b", interrupted)
    assert list(read_json(report.path)["measurements"]) == ["a"]


def test_ratios_of_training_are_of_the_same_round_and_shape(report, capsys):
    speeds = {
        "base, ours, round 1": 100.0,
        "base, peer, round 1": 50.0,
        "big, ours, round 1": 10.0,
        "big, peer, round 1": 5.0,
        "base, ours, round 2": 300.0,
        "base, peer, round 2": 60.0,
        "big, alone, round 2": 7.0,
    }
    report.content["measurements"] = {f"train, {name}": {"tokens_per_second": speed} for name, speed in speeds.items()}
    gpu.summarize(report)
    summary = report.content["summary"]
    assert summary["train, base, ours"] == {"tokens_per_second": 200.0, "rounds": 2, "ratios": [1.0, 1.0]}
    assert summary["train, base, peer"] == {"tokens_per_second": 55.0, "rounds": 2, "ratios": [2.0, 5.0]}
    assert summary["train, big, peer"]["ratios"] == [2.0]
    assert summary["train, big, alone"]["ratios"] == []
    assert "train, base, peer: 55 target tokens/s, ours is 3.50 times as fast" in capsys.readouterr().out


def test_the_gpu_is_idle_where_no_kernel_runs():
    """Of 100 µs: a runs from 0 to 30, and b from 20 to 40 beside it and within a; c from 90 to 100."""
    events = [Event("c", 90, 100), Event("a", 0, 30), Event("b", 20, 40), Event("b", 5, 10)]
    found = times(events, updates=2)
    assert busy(events) == 50
    assert found["idle_share"] == 0.5
    assert found["kernels_an_update"] == 2
    assert [row["name"] for row in found["kernels"]] == ["a", "b", "c"]
    expected = {"name": "b", "calls_an_update": 1.0, "milliseconds_an_update": 0.0125, "share": 25 / 65}
    assert found["kernels"][1] == expected


def test_a_machine_without_a_gpu_is_told_in_a_line(monkeypatch, capsys):
    """By the command that stands in the documentation."""
    monkeypatch.setattr(gpu.torch.cuda, "is_available", lambda: False)
    words = "train --shape base32k --rounds 1 --minutes 3".split()
    status, error = status_and_error(gpu.main, *words, capsys=capsys)
    assert status == 2
    assert "PyTorch finds no GPU here" in error


@pytest.mark.parametrize("words", [["decode"], ["train", "--model", "x"], ["decode", "--model", "x"]])
def test_decoding_needs_a_model_and_a_text(words, capsys):
    with pytest.raises(SystemExit):
        gpu.main([*words, *TRIAL])
    assert "decode needs --model MODEL_DIR and --text SOURCE REFERENCE" in capsys.readouterr().err


def test_what_was_measured_is_kept_when_the_command_is_terminated(tmp_path, monkeypatch, capsys):
    """As `timeout` and queues of machines do."""

    def parts(names, report, *others):
        report.measure("a", lambda seconds: {"value": 1})
        report.measure("b", lambda seconds: os.kill(os.getpid(), signal.SIGTERM))

    monkeypatch.setattr(gpu, "measure_parts", parts)
    words = ["profile", *TRIAL, "--out", tmp_path / "gpu.json"]
    assert status_and_error(gpu.main, *words, capsys=capsys) == (128 + signal.SIGTERM, "terminated\n")
    report = read_json(tmp_path / "gpu.json")
    assert list(report["measurements"]) == ["a"]
    assert {"device", "driver", "commit", "torch", "python", "date", "arguments"} <= report.keys()


@pytest.mark.slow
def test_a_trial_of_all_parts_on_a_cpu(tmp_path, model_dir, monkeypatch):
    """By the command as it is typed, from another directory, which finds the package by itself."""
    for side, lines in zip(("en", "de"), zip(*demo_pairs(8), strict=True), strict=True):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    words = ["all", "decode", *TRIAL, "--model", str(model_dir), "--text", "en", "de", "--out", "gpu.json"]
    elsewhere = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if not path.startswith(str(ROOT))]
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "benchmarks" / "gpu.py"), *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(elsewhere)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert report["failed"] == {} and report["not_measured"] == []
    found = report["measurements"]
    assert {f"decode, ours, fp32, batches of {size}" for size in gpu.LINES} <= found.keys()
    for name, figures in found.items():
        if name.startswith("decode, "):
            assert figures["beam 4"]["lines_per_second"] > 0
    assert found["profile"]["tokens_per_second"] > 0 and found["profile"]["kernels"]
    for layout in found["numerics, features and gradients"].values():
        assert max(layout["packed"]["gradients"], layout["padded"]["gradients"]) < 1e-5
    losses = {found[f"train, tiny, {name}, round 1"]["first_loss"] for name in ("ours", "nn.Transformer")}
    assert max(losses) - min(losses) < 1e-4
