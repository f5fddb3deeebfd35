"""The parts of the measurements on a GPU: what follows from their figures, and a trial of all."""

import math
import os
import subprocess
import sys

import pytest
from benchmarks.decoding_process import Outcome
from benchmarks.gpu_parts import command, curve, decoding, profiling, text
from benchmarks.gpu_parts.curve import running_means
from benchmarks.gpu_parts.profiling import Event, busy, times
from benchmarks.gpu_parts.training import summary
from helpers.tiny import ROOT

from transformer_mt.storage.files import read_json


def test_ratios_of_training_are_of_the_same_round_and_shape():
    def run(speed, loss):
        return {"tokens_per_second": speed, "first_loss": loss}

    found = {
        "base, ours, round 1": run(100.0, 5.0),
        "base, peer, round 1": run(50.0, 5.00001),
        "big, ours, round 1": run(10.0, 6.0),
        "big, peer, round 1": run(5.0, 6.1),
        "base, ours, round 2": run(300.0, 5.0),
        "base, other, round 2": run(100.0, None),
        "base, peer, round 2": run(60.0, 5.0),
        "big, alone, round 1": run(7.0, 6.0),
    }
    report = summary(["base", "big"], found)
    assert report["base"]["ours"]["tokens_per_second"] == 200.0
    assert report["base"]["peer"]["ratios"] == [2.0, 5.0]
    assert report["base"]["peer"]["ours_is_times_as_fast"] == 3.5
    assert report["base"]["peer"]["first_loss_is_ours"]
    assert report["base"]["other"]["ratios"] == [3.0]
    assert not report["big"]["peer"]["first_loss_is_ours"]
    assert report["big"]["peer"]["rounds"] == 1


def test_the_gpu_is_idle_where_no_kernel_runs():
    """Of 100 µs: a runs from 0 to 30, and b from 20 to 40 beside it and within a; c from 90 to 100."""
    events = [Event("c", 90, 100), Event("a", 0, 30), Event("b", 20, 40), Event("b", 5, 10)]
    found = times(events, updates=2)
    assert busy(events) == 50
    assert found["idle_share"] == 0.5
    assert found["kernels_an_update"] == 2
    assert [row["name"] for row in found["kernels"]] == ["a", "b", "c"]
    assert found["kernels"][1] == {
        "name": "b",
        "calls_an_update": 1.0,
        "milliseconds_an_update": 0.0125,
        "share": 25 / 65,
    }


def test_tuning_is_measured_on_gpus_alone_and_beside_updates_without_it(tmp_path):
    words = ["profile", "--out", str(tmp_path), "--device", "cpu", "--shape", "tiny"]
    cpu = command.settings_of(command.parse(words), tmp_path)
    of_cpu, of_gpu = (
        [one.name for one in profiling.part(settings).measurements]
        for settings in (cpu, cpu.model_copy(update={"device": "cuda"}))
    )
    assert of_cpu == ["updates", "attention"]
    assert of_gpu == ["updates", "attention", "updates, max-autotune"]
    plain, _, tuned = of_gpu
    found = {plain: {"without_the_profiler": {"tokens_per_second": 2.0}}}
    assert profiling.summary(found) == {}
    found[tuned] = {"without_the_profiler": {"tokens_per_second": 3.0}}
    assert profiling.summary(found) == {"tuned_is_times_as_fast": 1.5}


def test_curves_are_compared_by_their_running_means():
    assert running_means([1.0, 3.0, 8.0, 0.0], 2) == [2.0, 5.5, 4.0]
    same = [5.0 - 0.01 * i for i in range(60)]
    up = [loss + (0.2 if i == 30 else 0.0) for i, loss in enumerate(same)]
    report = curve.summary({curve.PADDED: {"losses": same}, curve.PACKED: {"losses": up}})
    assert report["largest_difference"] == pytest.approx(0.2 / curve.WINDOW)
    assert "largest_difference_by_dropout_alone" not in report
    assert report["last_means"][curve.PADDED] == pytest.approx(5.0 - 0.01 * 49.5)
    assert curve.summary({}) == {"window": curve.WINDOW, "updates": [], "last_means": {}}


def test_translations_are_counted_that_are_those_of_ours():
    tokenizer = PiecesOfSpaces()

    def figures(lines, seconds, model="m"):
        both = [Outcome(lines, 9.0, None), Outcome(lines, seconds, None)]
        of_search = decoding.figures_of(both, tokenizer)
        return {"model": model, **dict.fromkeys(decoding.BEAMS.values(), of_search)}

    found = {
        "ours, batches of 32": figures(["a b", "c", "d e f"], 2.0),
        "peer, batches of 32": figures(["a  b", "x", "d e f"], 3.0),
        "peer, batches of 1": figures(["a b"], 3.0),
        "stranger, batches of 32": figures(["a b", "c", "d e f"], 2.0, model="other"),
    }
    greedy = decoding.summary(found)["batches of 32"]["greedy"]
    assert greedy["ours"] == {
        "lines_per_second": 1.5,
        "tokens_per_second": 3.0,
        "ours_is_times_as_fast": 1.0,
        "lines_as_ours": 3,
        "lines": 3,
    }
    assert greedy["peer"]["lines_as_ours"] == 2
    assert greedy["peer"]["ours_is_times_as_fast"] == 1.5
    assert "lines_as_ours" not in greedy["stranger"]
    assert list(decoding.summary(found)["batches of 1"]["beam 4"]["peer"]) == ["lines_per_second", "tokens_per_second"]


class PiecesOfSpaces:
    """A tokenizer whose pieces are words."""

    def encode_target(self, lines):
        return [[*range(len(line.split())), 3] for line in lines]


def test_pairs_held_out_are_not_learnt(tmp_path):
    pairs = [(f"source {i // 2}", f"target {i}") for i in range(50)]
    text.write_split(tmp_path, pairs)
    valid, train = ((tmp_path / f"{name}.source").read_text().splitlines() for name in ("valid", "train"))
    assert valid == ["source 0", "source 5", "source 10", "source 15", "source 20"]
    assert len(train) == 40
    assert not set(valid) & set(train)
    targets = (tmp_path / "train.target").read_text().splitlines()
    assert targets[:3] == ["target 2", "target 3", "target 4"]


@pytest.mark.slow
def test_a_trial_of_all_parts_on_a_cpu(tmp_path):
    """By the command as it is typed, from another directory, which finds the package by itself."""
    script = ROOT / "scripts" / "benchmarks" / "gpu.py"
    words = ["all", "--device", "cpu", "--shape", "tiny", "--out", "out"]
    elsewhere = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if not path.startswith(str(ROOT))]
    done = subprocess.run(
        [sys.executable, str(script), *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(elsewhere)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout
    reports = {name: read_json(tmp_path / "out" / f"{name}.json") for name in command.PARTS}
    assert all(report["complete"] for report in reports.values())

    layouts = reports["numerics"]["measurements"]["packed and padded against fp64"]
    assert all(one[name]["gradients"] < 1e-5 for one in layouts.values() if isinstance(one, dict) for name in LAYOUTS)
    both = reports["numerics"]["measurements"]["search here and on the CPU"]
    assert both["beam 1"]["equal"] == both["beam 4"]["equal"] == both["sentences"]
    assert reports["profile"]["measurements"]["updates"]["without_the_profiler"]["tokens_per_second"] > 0
    for kind in ("encoder", "decoder", "across"):
        plain = reports["profile"]["measurements"]["attention"][kind]["plain"]
        assert 0 < plain["forward"] < plain["forward and backward"]
    assert all(row["first_loss_is_ours"] for row in reports["train"]["summary"]["tiny"].values())
    learnt = reports["learn"]["measurements"]["two minutes"]
    assert learnt["loss"] < math.log(500), "which is that of all pieces being equally likely"
    assert learnt["validation"]["bleu"] >= 0
    assert reports["curve"]["summary"]["largest_difference"] < 0.5
    greedy = reports["decode"]["summary"]["batches of 4"]["greedy"]
    assert set(greedy) == {"ours", "CTranslate2", "Hugging Face"}


LAYOUTS = ("packed", "padded")
