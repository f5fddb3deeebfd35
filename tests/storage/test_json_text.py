"""A JSON file of any content is read, or raises ValueError."""

import os

import pytest
from helpers.hostile import time_limit

from transformer_mt.storage.files import finite, parse_json, read_json


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "[Infinity]", "-Infinity", "-1e999", "[" * 100_000, '{"a":' * 50_000, "\x00", "[1] 2"],
)
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse_json(text)


def test_json_is_read(tmp_path):
    (tmp_path / "x.json").write_text('{"ä": [1, 2.5, null]}', encoding="utf-8")
    assert read_json(tmp_path / "x.json") == {"ä": [1, 2.5, None]}


def test_a_pipe_in_the_place_of_a_file_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with time_limit(20), pytest.raises(OSError, match="not a regular file"):
        read_json(tmp_path / "pipe")


def test_numbers_that_json_has_not_are_null():
    assert [finite(x, 2) for x in (1.234, float("nan"), float("inf"), -float("inf"))] == [1.23, None, None, None]
