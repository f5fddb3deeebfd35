"""The numbers behind a picture as a file: read back as they were, the same bytes, safely written."""

from pathlib import Path

import numpy as np
import pytest
from helpers.messages import message

from transformer_mt.base.errors import UserError
from transformer_mt.reporting import picture_file

pytest.importorskip("matplotlib")

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


def test_npz_is_read_without_pickle_and_is_what_was_written(tmp_path):
    picture_file.write_numbers(tmp_path / "x.npz", "masks", NUMBERS)
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert file.files == ["picture", *NUMBERS]
        assert str(file["picture"]) == "masks"
        for name, value in NUMBERS.items():
            assert np.array_equal(file[name], value, equal_nan=name == "loss"), name
            assert file[name].dtype == np.asarray(value).dtype


def test_the_same_numbers_are_the_same_bytes(tmp_path):
    one, other = tmp_path / "one.npz", tmp_path / "other.NPZ"
    for path in (one, other):
        picture_file.write_numbers(path, "masks", NUMBERS)
    assert one.read_bytes() == other.read_bytes()


def test_numbers_are_replaced_and_a_file_of_something_else_is_not(tmp_path):
    path = tmp_path / "x.npz"
    path.touch()
    for _ in range(2):
        picture_file.write_numbers(path, "masks", NUMBERS)
    for mine in (b'{"mine": 1}', b"PK\x03\x04 an archive", b"text"):
        path.write_bytes(mine)
        with pytest.raises(UserError, match=message("picture-place-taken", "x.npz", "npz")):
            picture_file.write_numbers(path, "masks", NUMBERS)
        assert path.read_bytes() == mine


def test_arrays_that_need_pickle_are_never_written(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle=False"):
        picture_file.write_numbers(tmp_path / "x.npz", "masks", {"x": np.array([{}], dtype=object)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x", "x.npy", "x.csv", "x.json", ".npz"])
def test_an_unknown_format_is_refused(name):
    with pytest.raises(UserError, match=message("picture-suffix-unknown", "npz")):
        picture_file.check(Path(name), picture_file.NUMBERS)


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path):
    with pytest.raises(UserError, match=message("file-cannot-be-written", "nowhere/x.npz")):
        picture_file.write_numbers(tmp_path / "nowhere" / "x.npz", "masks", NUMBERS)
    assert list(tmp_path.iterdir()) == []
