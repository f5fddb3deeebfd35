"""The text that the benchmark of prepare is given."""

import random
from pathlib import Path

import pytest
from benchmarks.generated_text import words, write_pairs


@pytest.mark.thorough
def test_pairs_are_the_same_for_the_same_seed_and_have_equally_many_words(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_pairs(500, tmp_path / "folder" / name)
    source, target = (tmp_path / "folder" / f"one.{side}" for side in ("source", "target"))
    assert source.read_bytes() == (tmp_path / "folder" / "other.source").read_bytes()
    lengths = [
        [len(line.split()) for line in path.read_text(encoding="utf-8").splitlines()] for path in (source, target)
    ]
    assert lengths[0] == lengths[1] and len(lengths[0]) == 500
    assert min(lengths[0]) >= 3 and 13 < sum(lengths[0]) / 500 < 17
    assert source.read_bytes() != target.read_bytes()


def test_words_differ_and_the_frequent_ones_are_shorter() -> None:
    found = words(5000, random.Random(1))
    assert len(set(found)) == 5000
    assert sum(map(len, found[:100])) / 100 < sum(map(len, found[-100:])) / 100 - 2
