"""The lines of a tokenizer: as many as there is room for, from all parts of all corpora, whatever their sizes."""

import random
from collections.abc import Iterator
from itertools import islice

import pytest

from transformer_mt.corpora.opening import Line, sample_of

PLENTY = 10**12


def numbered(count: int, name: str = "", width: int = 1) -> Iterator[Line]:
    return ((f"{name}{number}".ljust(width), f"{name}-{number}") for number in range(count))


def numbers(lines: list[str], name: str = "") -> list[int]:
    return [int(line.removeprefix(name)) for line in lines if line.startswith(name)]


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 29, 30, 31, 1000])
@pytest.mark.parametrize("most", [1, 7, 10, 30])
def test_of_one_corpus_every_kth_pair_is_taken(count: int, most: int) -> None:
    """The rule of version 0.1.0, so that its tokenizers are trained on the same lines."""
    expected = list(islice(numbered(count), 0, None, -(-count // most)))
    found = sample_of([(numbered(count), count)], most, PLENTY)
    assert list(zip(*found, strict=True)) == expected


def test_pairs_that_do_not_stay_are_not_replaced_by_others() -> None:
    corpora = [(numbered(100, "a"), 100), (numbered(100, "b"), None)]
    asked: list[tuple[int, Line]] = []

    def stays(corpus: int, pair: Line) -> bool:
        asked.append((corpus, pair))
        return not (corpus == 0 and pair[0] < "a5")

    sources, targets = sample_of(corpora, 1000, PLENTY, stays)
    assert sources == [*(f"a{i}" for i in range(100) if f"a{i}" >= "a5"), *(f"b{i}" for i in range(100))]
    assert len(targets) == len(sources) and len(asked) == 200
    sources, _ = sample_of([(numbered(100, "a"), 100)], 50, PLENTY, stays)
    assert numbers(sources, "a") == [i for i in range(0, 100, 2) if f"a{i}" >= "a5"]


@pytest.mark.parametrize("known", [True, False])
def test_no_bound_is_exceeded_and_the_lines_are_spread_evenly(known: bool) -> None:
    generator = random.Random(1)
    for _ in range(300):
        sizes = [generator.choice([1, 3, 20, 100, 300]) for _ in range(generator.randint(1, 4))]
        most, width = generator.randint(len(sizes), 200), generator.choice([1, 50])
        most_bytes = max(len(sizes) * width * 2, generator.randint(100, 5000))
        corpora = [(numbered(size, f"{name}:", width), size if known else None) for name, size in enumerate(sizes)]
        sources, targets = sample_of(corpora, most, most_bytes)
        assert len(sources) == len(targets) <= most
        assert max(sum(len(line) for line in side) for side in (sources, targets)) <= most_bytes
        for name, size in enumerate(sizes):
            taken = numbers(sources, f"{name}:")
            step = taken[1] - taken[0] if len(taken) > 1 else size
            assert taken == list(range(0, size, step))[: len(taken)], "the first of each, and then every k-th"
            assert len(taken) == 1 or taken[-1] + step >= size, "to the end of the corpus"


def test_small_corpora_stay_whole_and_large_ones_have_equal_shares() -> None:
    sizes = {"tiny": 10, "large": 5000, "small": 90, "huge": 80_000}
    for names in (list(sizes), list(reversed(sizes))):
        corpora = [(numbered(sizes[name], f"{name}:"), None) for name in names]
        sources, _ = sample_of(corpora, 1000, PLENTY)
        counts = {name: len(numbers(sources, f"{name}:")) for name in sizes}
        assert counts["tiny"] == 10 and counts["small"] == 90
        assert all(200 <= counts[name] <= 700 for name in ("large", "huge")), counts
        assert sum(counts.values()) > 500


def test_a_line_of_a_giant_does_not_empty_the_sample_and_the_first_line_of_all_always_stays() -> None:
    pairs = [("a", "b")] * 50 + [("x" * 10_000, "y")] + [("c", "d")] * 49
    assert len(sample_of([(iter(pairs), 100)], 1000, 20_000)[0]) == 100
    assert sample_of([(iter([("x" * 500, "y"), ("a", "b")]), 2)], 10, 20) == (["x" * 500], ["y"])
    assert sample_of([(iter([]), None)], 10, 10) == ([], [])


def test_bytes_are_counted_in_utf_8_on_the_longer_side() -> None:
    pairs = [("ab", "猫" * 4)] * 8
    assert len(sample_of([(iter(pairs), 8)], 100, 96)[0]) == 8
    assert len(sample_of([(iter(pairs), 8)], 100, 95)[0]) == 4
    assert len(sample_of([(iter([("\ud800", "")]), 1)], 100, 3)[0]) == 1
