"""What is read of log.jsonl."""

import json
import os

import pytest
from helpers.messages import message

from transformer_mt.base.errors import UserError
from transformer_mt.reporting.charts import lines_of, read_log


@pytest.fixture
def logged(tmp_path):
    """A function that reads a log of these records, and of this text behind them."""

    def read(*records, text=""):
        lines = "".join(f"{json.dumps(record)}\n" for record in records)
        (tmp_path / "log.jsonl").write_text(lines + text, encoding="utf-8")
        return read_log(tmp_path)

    return read


def test_the_lines_of_a_field_are_where_the_log_has_it(logged):
    valid = {"step": 2, "valid_nll": 2.5, "valid_bleu": 11.0, "valid_seconds": 1.5, "best": True}
    records, faults = logged({"step": 1, "loss": 9.0}, {"step": 2, "loss": None}, valid, {"step": 3, "loss": 3.0})
    assert faults == [] and [record.step for record in records] == [1, 2, 2, 3]
    assert records[2].model_dump(exclude_unset=True) == valid
    lines = lines_of(records)
    assert lines == {"loss": ([1, 2, 3], [9.0, None, 3.0]), "valid_nll": ([2], [2.5]), "valid_bleu": ([2], [11.0])}


def test_lines_of_others_are_named_and_a_last_one_that_is_half_written_is_left_out(logged):
    text = 'not JSON\n{"step": NaN}\n{"step": 3, "loss": 1'
    records, faults = logged({"step": 1, "loss": 9.0}, {"epoch": 3}, [], {"step": 2, "loss": 1.0}, text=text)
    assert [record.step for record in records] == [1, 2]
    assert [fault.split("log.jsonl, ")[1].split(":")[0] for fault in faults] == ["line 2", "line 3", "line 5", "line 6"]


@pytest.mark.parametrize("records", [[], [{"step": 1, "loss": None}], [{"step": 1, "epoch": 0}]])
def test_a_log_without_numbers_has_no_update_yet(logged, records):
    with pytest.raises(UserError, match=message("log-without-update", "log.jsonl")):
        logged(*records)


def test_a_log_that_is_not_there_or_no_file_is_named(tmp_path):
    with pytest.raises(UserError, match=message("log-cannot-be-read")):
        read_log(tmp_path)
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(UserError, match=message("log-cannot-be-read")):
        read_log(tmp_path)


def test_a_log_that_is_a_pipe_is_not_waited_for(at_once, tmp_path):
    os.mkfifo(tmp_path / "log.jsonl")
    with pytest.raises(UserError, match=message("log-cannot-be-read")):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{]", "line 1: Invalid JSON"),
        ('{"epoch": 1}', "line 1: step: Field required"),
        ('{"step": 1, "loss": "low"}', "line 1: loss: Input should be a valid number"),
        ('{"step": 1, "loss": 1e999}', "line 1: loss: Input should be a finite number"),
        ("[]", "line 1: Input should be an object"),
    ],
)
def test_what_is_wrong_in_a_line_is_said(logged, line, fault):
    _, [found] = logged(text=f"{line}\n")
    assert f"log.jsonl, {fault}" in found
