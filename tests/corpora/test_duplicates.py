"""Duplicates are found as a set in memory finds them, in little memory, and after a kill, too."""

import os
import tracemalloc

import numpy as np
import pytest
from helpers.disk import largest_file

from transformer_mt.corpora import duplicates
from transformer_mt.corpora.duplicates import KEY_BYTES, find_duplicates, pair_key, plain_duplicates
from transformer_mt.storage.own_directory import temporary_directory


def random_keys(sizes, different, seed=1):
    """Keys of files of these sizes, of which about `different` are different."""
    generator = np.random.default_rng(seed)
    keys = [generator.bytes(KEY_BYTES) for _ in range(different)]
    return [[keys[i] for i in generator.integers(0, different, size)] for size in sizes]


def write(directory, keys):
    paths = [directory / f"{number}.keys" for number in range(len(keys))]
    for path, of_file in zip(paths, keys, strict=True):
        path.write_bytes(b"".join(of_file))
    return paths


def found(directory, keys, **options):
    return [rows.tolist() for rows in find_duplicates(write(directory, keys), directory / "duplicates", **options)]


@pytest.mark.parametrize("memory", [1, 300, 5_000, 100_000, duplicates.MEMORY])
@pytest.mark.parametrize("sizes", [[0], [1], [300], [40, 0, 200, 1, 90]])
def test_they_are_those_that_a_set_finds(sizes, memory, tmp_path):
    keys = random_keys(sizes, different=120)
    assert found(tmp_path, keys, memory=memory) == plain_duplicates(keys)
    assert {path.suffix for path in tmp_path.iterdir()} == {".keys"}


def test_the_same_first_half_of_a_key_is_not_the_same_key(tmp_path):
    halves = [bytes(8), b"\xff" * 8, b"\x01" + bytes(7)]
    keys = [[a + b for a in halves for b in halves] * 2, [halves[1] + halves[0], halves[2] * 2]]
    for memory in (1, 500, 100_000):
        assert found(tmp_path, keys, memory=memory) == [[*range(9, 18)], [0, 1]]


def test_no_keys_at_all(tmp_path):
    assert list(find_duplicates([], tmp_path / "duplicates")) == []


def test_memory_is_bounded_even_where_one_pair_is_there_very_often(tmp_path):
    generator = np.random.default_rng(2)
    num_keys, memory = 300_000, 4_000_000
    keys = generator.integers(0, 256, (num_keys, KEY_BYTES), np.uint8)
    keys[::2] = keys[0]
    (tmp_path / "all.keys").write_bytes(keys.tobytes())
    tracemalloc.start()
    try:
        [rows] = find_duplicates([tmp_path / "all.keys"], tmp_path / "duplicates", memory)
        of_result = rows.nbytes
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows.tolist() == list(range(2, num_keys, 2))
    # Of one file all rows are given at once; they are sorted in a copy.
    assert peak - 3 * of_result < memory
    assert num_keys * 32 > 2 * memory, "else it says nothing"


@pytest.mark.parametrize("at_file", range(3))
def test_killed_a_rerun_finds_the_same_and_leaves_nothing(at_file, tmp_path, monkeypatch):
    keys = random_keys([50, 60, 70], different=60)
    paths, work = write(tmp_path, keys), tmp_path / "duplicates"
    before = set(os.listdir(tmp_path))
    # As after a kill: what was written stays.
    with monkeypatch.context() as patched:
        patched.setattr("transformer_mt.storage.own_directory._clear", lambda *_: None)
        patched.setattr("pathlib.Path.unlink", lambda *_, **__: None)
        rows = find_duplicates(paths, work, memory=2_000)
        for _ in range(at_file):
            next(rows)
        rows.close()
    assert at_file == 0 or set(os.listdir(tmp_path)) > before
    assert [rows.tolist() for rows in find_duplicates(paths, work, memory=2_000)] == plain_duplicates(keys)
    assert set(os.listdir(tmp_path)) == before


def test_a_loop_that_stops_early_leaves_nothing(tmp_path):
    paths = write(tmp_path, random_keys([50, 60], different=30))
    rows = find_duplicates(paths, tmp_path / "duplicates", memory=2_000)
    next(rows)
    rows.close()
    assert {path.suffix for path in tmp_path.iterdir()} == {".keys"}


def test_keys_differ_where_texts_do_and_do_not_depend_on_the_process():
    pairs = [("a", "b"), ("a b", ""), ("", "a b"), ("b", "a"), ("ab", ""), ("A", "b"), ("é", "b"), ("a\0", "b")]
    assert len({pair_key(*pair) for pair in pairs}) == len(pairs)
    assert pair_key("a", "b").hex() == pair_key("a", "b").hex() and len(pair_key("a", "b")) == KEY_BYTES


def test_nobody_elses_directory_is_used(tmp_path):
    with temporary_directory(tmp_path / "duplicates"), pytest.raises(ValueError, match="another process"):
        found(tmp_path, [[bytes(16)]])


def test_on_a_full_disk_nothing_is_lost_in_silence(tmp_path):
    files = write(tmp_path, random_keys([100], 50))
    with largest_file(400), pytest.raises(OSError, match="File too large"):
        list(find_duplicates(files, tmp_path / "duplicates"))
