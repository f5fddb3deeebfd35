"""The measurements on a GPU: what is written when, what is skipped, and how a part keeps within its time."""

import json
import os
import signal

import pytest
from benchmarks.environment import PeerError
from benchmarks.gpu_parts import command
from benchmarks.gpu_parts.own_process import in_own_process
from benchmarks.gpu_parts.report import LeftOut, Measurement, Part, is_finished, measure_part
from benchmarks.gpu_parts.settings import Settings
from helpers.tiny import status_and_error

from transformer_mt.storage.files import read_json


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
    wrong = [bench.one("a", 1.0, PeerError("no memory")), bench.one("c", 1.0, ValueError("NaN"))]
    report = bench.measure(*wrong, bench.one("b", 1.0, 2))
    assert report["failed"] == {"a": "no memory", "c": "ValueError: NaN"}
    assert list(report["measurements"]) == ["b"]
    assert not report["complete"]
    assert bench.measure(bench.one("a", 1.0, 1), bench.one("c", 1.0, 3), bench.one("b", 1.0, 2))["complete"]
    assert [name for name, _ in bench.made] == ["a", "c", "b", "a", "c"]


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--precision", "fp16"], "--precision fp16 is only for the part decode, not for train"),
        (["train", "--text", "no/such", "file"], "no/such does not exist"),
    ],
)
def test_mistakes_end_with_status_2(tmp_path, capsys, arguments, message):
    status, error = status_and_error(command.main, *arguments, "--out", tmp_path, "--device", "cpu", capsys=capsys)
    assert status == 2
    assert message in error


def test_what_was_measured_is_kept_when_the_command_is_terminated(tmp_path, monkeypatch, capsys):
    """As `timeout` and queues of machines do."""

    def part(settings):
        first = Measurement("a", "a", 0.0, lambda seconds: {"value": 1})
        return Part("learn", [first, Measurement("b", "b", 0.0, lambda seconds: os.kill(os.getpid(), signal.SIGTERM))])

    monkeypatch.setattr(command, "PARTS", {"learn": part})
    words = ["learn", "--device", "cpu", "--shape", "tiny", "--out", tmp_path]
    assert status_and_error(command.main, *words, capsys=capsys) == (128 + signal.SIGTERM, "terminated\n")
    report = read_json(tmp_path / "learn.json")
    assert list(report["measurements"]) == ["a"]
    assert report["not_measured"] == ["b"]


@pytest.mark.parametrize(
    ("module", "seconds", "message"),
    [
        ("numerics", 0.1, "numerics, x: it was stopped after 0 s"),
        ("no_such_module", 60.0, r"no_such_module, x: it ended with status 1. .*\n.*No module named"),
    ],
)
def test_a_process_that_fails_or_takes_too_long_is_told(settings, module, seconds, message):
    with pytest.raises(PeerError, match=message):
        in_own_process(module, "x", settings, seconds)
    assert f"--- {module}: x" in (settings.out / "log.txt").read_text()
