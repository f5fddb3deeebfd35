"""Writes the numbers behind a picture: .npz for NumPy, or .json for everything else."""

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.errors import PictureError
from transformer_mt.storage.files import write_whole

Numbers = Mapping[str, NDArray[Any] | Sequence[str] | Sequence[float] | str | int]
"""Arrays and labels by their names. The letters after the last `_` of a name are the axes of an array."""

# Each file begins with the name of its picture, by which a file of something else is told from it.
_BEGINS = {"npz": (b"PK\x03\x04", b"picture.npy"), "json": (b'{\n"picture":',)}


def check(path: Path) -> str:
    """The format that the ending of `path` names.

    Raises PictureError for an unknown format, and if the file exists and is not one that `write` has written.
    """
    numbers_format = path.suffix.removeprefix(".").lower()
    if numbers_format not in _BEGINS:
        raise PictureError(f"{path}: the name of a file of numbers must end in .{' or .'.join(_BEGINS)}")
    if path.is_file():
        with path.open("rb") as file:
            beginning = file.read(100)
        if beginning and not all(mark in beginning for mark in _BEGINS[numbers_format]):
            raise PictureError(
                f"{path}: is there already, and does not hold the numbers of a picture, so it is left as it is. "
                "Name another file"
            )
    return numbers_format


def write(path: Path, picture: str, numbers: Numbers) -> None:
    """Write the numbers, and the name of the picture as `picture`. The same numbers always give the same bytes.

    JSON has null for a number that is not finite. Raises PictureError like `check`, or UserError if it cannot be
    written.
    """
    numbers_format = check(path)
    arrays = {name: np.asarray(value) for name, value in ({"picture": picture} | dict(numbers)).items()}
    assert not any(array.dtype.hasobject for array in arrays.values()), "NumPy would need pickle to read it"
    if numbers_format == "npz":
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **arrays)
        write_whole(path, content.getvalue())
    else:
        lines = [f"{json.dumps(name)}: {_json(array)}" for name, array in arrays.items()]
        write_whole(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _json(array: NDArray[Any]) -> str:
    return json.dumps(_finite(array.tolist()), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    """The same nested lists, with None in place of numbers that are not finite."""
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
