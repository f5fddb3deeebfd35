"""The measurements on a GPU: what is written when, what is skipped, and how a part keeps within its time."""

import json
import math
import os
import subprocess
import sys

import pytest
from benchmarks.decoding_process import Outcome
from benchmarks.environment import PeerError
from benchmarks.gpu_parts import command, curve, decoding, text
from benchmarks.gpu_parts.curve import running_means
from benchmarks.gpu_parts.profiling import Event, busy, times
from benchmarks.gpu_parts.report import LeftOut, Measurement, Part, is_finished, measure_part
from benchmarks.gpu_parts.settings import Settings
from benchmarks.gpu_parts.training import summary
from helpers.tiny import ROOT, status_and_error

from transformer_mt.storage.json_text import read_json


@pytest.fixture
def settings(tmp_path):
    return Settings(
        out=tmp_path / "out",
        work=tmp_path / "work",
        device="cpu",
        precision="auto",
        shape="tiny",
        text=(),
        model=None,
        rounds=1,
        threads=1,
        minutes=1.0,
    )


class Bench:
    """Measurements that take seconds of a clock of their own, and note that they were made."""

    def __init__(self, settings):
        self.settings, self.now, self.made = settings, 0.0, []

    def one(self, name, takes, result=None, expected=0.0, kind=None):
        def measure(seconds):
            self.now += takes
            self.made.append((name, seconds))
            if isinstance(result, BaseException):
                raise result
            return {"value": result}

        return Measurement(name, kind or name, expected, measure)

    def measure(self, *measurements):
        part = Part("part", measurements, lambda found: {"names": sorted(found)})
        return measure_part(part, self.settings, lambda: {"device": "none"}, clock=lambda: self.now)

    @property
    def written(self):
        return read_json(self.settings.out / "part.json")


@pytest.fixture
def bench(settings):
    return Bench(settings)


def test_a_report_has_the_device_the_settings_and_the_figures(bench):
    bench.measure(bench.one("a", 2.0, 0.5), bench.one("b", 3.0, [float("nan"), 1.0]))
    assert bench.written == {
        "part": "part",
        "device": "none",
        "settings": bench.settings.in_report,
        "complete": True,
        "seconds": 5.0,
        "summary": {"names": ["a", "b"]},
        "measurements": {"a": {"value": 0.5, "seconds": 2.0}, "b": {"value": [None, 1.0], "seconds": 3.0}},
        "left_out": {},
        "failed": {},
        "not_measured": [],
    }
    assert is_finished(bench.settings.out / "part.json", bench.settings)


def test_what_was_measured_is_kept_when_the_next_measurement_is_interrupted(bench):
    with pytest.raises(KeyboardInterrupt):
        bench.measure(bench.one("a", 2.0, 1), bench.one("b", 1.0, KeyboardInterrupt()))
    assert list(bench.written["measurements"]) == bench.written["summary"]["names"] == ["a"]
    assert bench.written["not_measured"] == ["b"]
    assert not bench.written["complete"]


def test_no_measurement_begins_that_would_not_end_in_time(bench):
    """Of 60 seconds, b leaves 15: not enough for c, which is like a, and for e, but for d."""
    slow = [bench.one("a", 20.0, 1, kind="x"), bench.one("b", 25.0, 2), bench.one("c", 20.0, 3, kind="x")]
    report = bench.measure(*slow, bench.one("d", 5.0, 4, expected=14.0), bench.one("e", 5.0, 5, expected=14.0))
    assert bench.made == [("a", 60.0), ("b", 40.0), ("d", 15.0)]
    assert report["not_measured"] == bench.written["not_measured"] == ["c", "e"]
    assert not report["complete"]


def test_an_unfinished_part_is_gone_on_with(bench):
    first, second = bench.one("a", 40.0, 1), bench.one("b", 10.0, 2, expected=30.0)
    assert not bench.measure(first, second)["complete"]
    report = bench.measure(first, second)
    assert [name for name, _ in bench.made] == ["a", "b"]
    assert report["complete"]
    assert report["seconds"] == 50.0
    assert bench.written["measurements"]["a"] == {"value": 1, "seconds": 40.0}


def test_what_fails_is_told_and_tried_again_and_stops_nothing(bench):
    report = bench.measure(bench.one("a", 1.0, PeerError("no memory")), bench.one("b", 1.0, 2))
    assert report["failed"] == {"a": "no memory"}
    assert list(report["measurements"]) == ["b"]
    assert not report["complete"]
    assert bench.measure(bench.one("a", 1.0, 1), bench.one("b", 1.0, 2))["complete"]
    assert [name for name, _ in bench.made] == ["a", "b", "a"]


def test_what_cannot_be_measured_here_does_not_make_a_part_incomplete(bench):
    report = bench.measure(bench.one("a", 1.0, LeftOut("it is not installed")), bench.one("b", 1.0, 2))
    assert report["left_out"] == {"a": "it is not installed"}
    assert report["complete"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a report of this command"),
        ("[]", "is not a report of this command"),
        ('{"settings": {"device": "cuda"}}', r"was measured with other settings \(device, "),
    ],
)
def test_a_report_of_something_else_is_not_gone_on_with(bench, content, message):
    bench.settings.out.mkdir()
    path = bench.settings.out / "part.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(PeerError, match=message):
        bench.measure(bench.one("a", 1.0, 1))
    assert path.read_text(encoding="utf-8") == content
    assert not bench.made


def test_a_finished_part_is_skipped_until_its_file_is_deleted(tmp_path, monkeypatch, capsys):
    made = []

    def part(settings):
        return Part("numerics", [Measurement("a", "a", 0.0, lambda seconds: made.append(settings) or {})])

    monkeypatch.setattr(command, "PARTS", {"numerics": part})
    words = ["numerics", "--device", "cpu", "--shape", "tiny", "--out", str(tmp_path)]
    assert command.main(words) == 0
    written = (tmp_path / "numerics.json").read_bytes()
    assert command.main(words) == 0
    assert f"delete {tmp_path}/numerics.json to repeat it" in capsys.readouterr().out
    assert (tmp_path / "numerics.json").read_bytes() == written
    assert len(made) == 1
    (tmp_path / "numerics.json").unlink()
    assert command.main(words) == 0
    assert len(made) == 2
    report = json.loads(written)
    assert report["torch"] and report["date"].endswith("+00:00") and report["packages"]["numpy"]
    assert {"device", "driver", "commit", "cuda", "memory_gib", "python"} <= report.keys()


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--precision", "fp16"], "--precision fp16 is only for the part decode, not for train"),
        (["train", "--text", "no/such", "file"], "no/such: is not there"),
    ],
)
def test_mistakes_end_with_status_2(tmp_path, capsys, arguments, message):
    status, error = status_and_error(command.main, *arguments, "--out", tmp_path, "--device", "cpu", capsys=capsys)
    assert status == 2
    assert message in error


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


@pytest.mark.thorough
def test_a_trial_of_all_parts_on_a_cpu(tmp_path):
    """By the command as it is typed, from another directory."""
    script = ROOT / "scripts" / "benchmarks" / "gpu.py"
    words = ["all", "--device", "cpu", "--shape", "tiny", "--rounds", "1", "--out", "out"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(script), *words],
        cwd=tmp_path,
        env=environment,
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
    assert all(row["first_loss_is_ours"] for row in reports["train"]["summary"]["tiny"].values())
    learnt = reports["learn"]["measurements"]["two minutes"]
    assert learnt["curve"][-1]["loss"] < learnt["curve"][0]["loss"] < math.log(500) + 1
    assert learnt["validation"]["bleu"] >= 0
    assert reports["curve"]["summary"]["largest_difference"] < 0.5
    greedy = reports["decode"]["summary"]["batches of 4"]["greedy"]
    assert set(greedy) == {"ours", "CTranslate2", "Hugging Face"}


LAYOUTS = ("packed", "padded")
