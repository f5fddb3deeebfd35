"""What is kept of log.jsonl: values that stand there, its peaks, its ends, and no more than a picture can show."""

import json
import math

import pytest

from transformer_mt.reporting.gathered import Log, Missing
from transformer_mt.reporting.learning import MOST_STRETCHES, read_log


@pytest.fixture
def logged(tmp_path):
    """A function that reads a log of these records, or of this text."""

    def read(*records, text=""):
        lines = "".join(f"{json.dumps(record)}\n" for record in records)
        (tmp_path / "log.jsonl").write_text(lines + text, encoding="utf-8")
        return read_log(tmp_path)

    return read


def line(step, **values):
    return {"step": step, "loss": 9.0 / step, "tokens": 10 * step, "seconds": 0.5 * step} | values


def test_a_short_log_is_kept_as_it_is(logged):
    valid = {"step": 2, "valid_nll": 2.5, "valid_bleu": 11.0, "valid_seconds": 1.5, "best": True}
    worse = valid | {"step": 3, "valid_bleu": 10.0, "best": False}
    log = logged(line(1), line(2), valid, line(3), worse)
    assert (log.curves["loss"].steps, log.curves["loss"].values) == ([1, 2, 3], [9.0, 4.5, 3.0])
    assert (log.curves["valid_bleu"].steps, log.curves["valid_bleu"].values) == ([2, 3], [11.0, 10.0])
    assert (log.last.model_dump(exclude_unset=True), log.valid_seconds) == (line(3), 3.0)
    assert log.best.model_dump(exclude_unset=True) == valid
    assert (log.num_lines, log.num_unread) == (5, 0)


@pytest.mark.parametrize("size", [2 * MOST_STRETCHES, 2 * MOST_STRETCHES + 1, 3_001])
def test_a_long_log_is_thinned_and_keeps_its_peaks_and_its_ends(logged, size):
    values = {step: 5 + math.sin(step) for step in range(1, size + 1)} | {size // 3: 99.0, size // 2: -7.0}
    curve = logged(*({"step": step, "loss": value} for step, value in values.items())).curves["loss"]
    assert len(curve.steps) <= 2 * MOST_STRETCHES + 2
    assert len(curve.steps) > MOST_STRETCHES / 2
    assert curve.steps == sorted(set(curve.steps))
    assert [values[step] for step in curve.steps] == curve.values
    assert {1, size // 3, size // 2, size} <= set(curve.steps)
    assert max(b - a for a, b in zip(curve.steps, curve.steps[1:], strict=False)) < 4 * size / MOST_STRETCHES + 4


def test_numbers_that_are_not_finite_stay_gaps(logged):
    log = logged(line(1), line(2, loss=None), line(3))
    assert log.curves["loss"].values == [9.0, None, 3.0]


def test_a_last_line_that_is_half_written_and_lines_of_others_are_left_out(logged):
    log = logged(line(1), {"epoch": 3}, [], line(2), text='not JSON\n{"step": NaN}\n{"step": 3, "loss": 1')
    assert log.curves["loss"].steps == [1, 2]
    assert (log.num_lines, log.num_unread) == (7, 5)


@pytest.mark.parametrize("records", [[], [{"step": 1, "loss": None}], [{"step": 1, "epoch": 0}]])
def test_a_log_without_numbers_is_missing(logged, records):
    found = logged(*records)
    assert isinstance(found, Missing) and "log.jsonl has no numbers yet" in found.reason


def test_a_log_that_is_not_there_or_no_file_is_missing(tmp_path):
    assert "has no log.jsonl" in read_log(tmp_path).reason
    (tmp_path / "log.jsonl").mkdir()
    found = read_log(tmp_path)
    assert not isinstance(found, Log) and "cannot be read" in found.reason
