"""The numbers behind a picture as files: read back as they were, the same bytes, safely written."""

import json
from pathlib import Path

import numpy as np
import pytest

from transformer_mt.errors import PictureError, UserError
from transformer_mt.pictures import numbers

NUMBERS = {
    "weights_LHTS": np.random.default_rng(1).random((1, 2, 3, 4), dtype=np.float32),
    "mask_TT": np.tri(3, dtype=bool),
    "layers": [1, 3],
    "words": ["▁中国", "$x^$", '"', "", "</s>"],
    "word": 2,
    "order": "learned",
    "nothing": np.zeros((0, 3), np.float32),
    "loss": np.array([1.0, np.nan, np.inf, -np.inf]),
}

each_format = pytest.mark.parametrize("ending", ["npz", "json"])


def test_npz_is_read_without_pickle_and_is_what_was_written(tmp_path):
    numbers.write(tmp_path / "x.npz", "masks", NUMBERS)
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert file.files == ["picture", *NUMBERS]
        assert str(file["picture"]) == "masks"
        for name, value in NUMBERS.items():
            assert np.array_equal(file[name], value, equal_nan=name == "loss"), name
            assert file[name].dtype == np.asarray(value).dtype


def test_json_has_the_same_and_null_for_what_is_not_finite(tmp_path):
    numbers.write(tmp_path / "x.json", "masks", NUMBERS)
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    found = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    assert list(found) == ["picture", *NUMBERS]
    assert found.pop("loss") == [1.0, None, None, None]
    assert np.array_equal(np.array(found["weights_LHTS"], np.float32), NUMBERS["weights_LHTS"]), "to the last bit"
    assert (found["mask_TT"], found["words"], found["word"]) == (np.tri(3, dtype=bool).tolist(), NUMBERS["words"], 2)


@each_format
def test_the_same_numbers_are_the_same_bytes(ending, tmp_path):
    one, other = tmp_path / f"one.{ending}", tmp_path / f"other.{ending.upper()}"
    for path in (one, other):
        numbers.write(path, "masks", NUMBERS)
    assert one.read_bytes() == other.read_bytes()


@each_format
def test_numbers_are_replaced_and_a_file_of_something_else_is_not(ending, tmp_path):
    path = tmp_path / f"x.{ending}"
    path.touch()
    for _ in range(2):
        numbers.write(path, "masks", NUMBERS)
    for mine in (b'{"mine": 1}', b"PK\x03\x04 an archive", b"text"):
        path.write_bytes(mine)
        with pytest.raises(PictureError, match=rf"x\.{ending}: is there already, and does not hold the numbers of a"):
            numbers.write(path, "masks", NUMBERS)
        assert path.read_bytes() == mine


def test_arrays_that_need_pickle_are_never_written(tmp_path):
    with pytest.raises(AssertionError, match="pickle"):
        numbers.write(tmp_path / "x.npz", "masks", {"x": np.array([{}], dtype=object)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x", "x.npy", "x.csv", ".npz"])
def test_an_unknown_format_is_refused(name):
    with pytest.raises(PictureError, match=r"the name of a file of numbers must end in \.npz or \.json"):
        numbers.check(Path(name))


@each_format
def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(ending, tmp_path):
    with pytest.raises(UserError, match=rf"nowhere/x\.{ending}: cannot be written"):
        numbers.write(tmp_path / "nowhere" / f"x.{ending}", "masks", NUMBERS)
    assert list(tmp_path.iterdir()) == []
