"""Duplicates are found as a set in memory finds them, in little memory."""

import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from transformer_mt.corpora import repeated
from transformer_mt.corpora.repeated import KEY_BYTES, find_duplicates, pair_key


def found_by_a_set(keys: Sequence[Sequence[bytes]]) -> list[list[int]]:
    seen: set[bytes] = set()
    found = []
    for of_file in keys:
        rows = []
        for row, key in enumerate(of_file):
            if key in seen:
                rows.append(row)
            seen.add(key)
        found.append(rows)
    return found


def random_keys(sizes: Sequence[int], different: int) -> list[list[bytes]]:
    """Keys of files of these sizes, of which about `different` are different."""
    generator = np.random.default_rng(1)
    keys = [generator.bytes(KEY_BYTES) for _ in range(different)]
    return [[keys[i] for i in generator.integers(0, different, size)] for size in sizes]


def found(directory: Path, keys: Sequence[Sequence[bytes]]) -> list[list[int]]:
    paths = [directory / f"{number}.keys" for number in range(len(keys))]
    for path, of_file in zip(paths, keys, strict=True):
        path.write_bytes(b"".join(of_file))
    return [rows.tolist() for rows in find_duplicates(paths)]


@pytest.mark.parametrize("memory", [100, 5_000, 100_000, repeated.MEMORY])
@pytest.mark.parametrize("sizes", [[], [0], [1], [300], [40, 0, 200, 1, 90]])
def test_they_are_those_that_a_set_finds(
    sizes: list[int], memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated, "_READ_AT_A_TIME", 64)
    monkeypatch.setattr(repeated, "MEMORY", memory)
    keys = random_keys(sizes, different=120)
    assert found(tmp_path, keys) == found_by_a_set(keys)


def test_the_same_first_half_of_a_key_is_not_the_same_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = [bytes(8), b"\xff" * 8, b"\x01" + bytes(7)]
    keys = [[a + b for a in halves for b in halves] * 2, [halves[1] + halves[0], halves[2] * 2]]
    for memory in (500, 100_000):
        monkeypatch.setattr(repeated, "MEMORY", memory)
        assert found(tmp_path, keys) == [[*range(9, 18)], [0, 1]]


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "_READ_AT_A_TIME", 5_000)
    num_keys, memory = 400_000, 4_000_000
    monkeypatch.setattr(repeated, "MEMORY", memory)
    keys = np.random.default_rng(2).integers(0, 256, (num_keys, KEY_BYTES), np.uint8)
    keys[-2:] = keys[:2]
    (tmp_path / "all.keys").write_bytes(keys.tobytes())
    tracemalloc.start()
    try:
        [rows] = find_duplicates([tmp_path / "all.keys"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows.tolist() == [num_keys - 2, num_keys - 1]
    assert peak < memory
    assert num_keys * KEY_BYTES > memory, "else it says nothing"


def test_keys_differ_where_texts_do_and_do_not_depend_on_the_process() -> None:
    pairs = [("a", "b"), ("a b", ""), ("", "a b"), ("b", "a"), ("ab", ""), ("A", "b"), ("é", "b"), ("a\0", "b")]
    assert len({pair_key(*pair) for pair in pairs}) == len(pairs)
    assert pair_key("a", "b").hex() == pair_key("a", "b").hex() and len(pair_key("a", "b")) == KEY_BYTES
