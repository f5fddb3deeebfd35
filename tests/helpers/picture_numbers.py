"""Reads the numbers behind a picture."""

import re
from pathlib import Path

import numpy as np
from helpers.tiny import ROOT

PAGE = (ROOT / "docs" / "translating.md").read_text(encoding="utf-8")


def read_numbers(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz by their names, without pickle. Each name is explained in the documentation."""
    with np.load(path, allow_pickle=False) as file:
        found = {name: file[name] for name in file}
    names = {re.sub(r"_[0-9]+(_updates)?$", "_i", name) for name in found}
    assert {name for name in names if f"`{name}`" not in PAGE} == set()
    return found
