"""The pairwise cover by which `make test` thins full products."""

from itertools import product

import pytest
from helpers.thorough import pairs, pairwise_cover

FULL = [{"a": a, "b": b, "c": c, "d": d} for a, b, c, d in product("abcde", range(3), range(3), [False, True])]
CONSTRAINED = [row for row in FULL if row["a"] != "e" or row["b"] == 0]


@pytest.mark.parametrize("rows", [FULL, CONSTRAINED, FULL[:1], [{"a": 1}, {"a": 2}]])
def test_every_pair_of_values_that_occurs_occurs_in_the_cover(rows):
    cover = pairwise_cover(rows)
    assert set().union(*map(pairs, cover)) == set().union(*map(pairs, rows))
    assert all(row in rows for row in cover)


def test_the_cover_is_far_smaller_than_the_product_and_always_the_same():
    cover = pairwise_cover(FULL)
    assert 15 <= len(cover) <= 20  # 5 × 3 pairs of the two longest lists are the least
    assert len(FULL) == 90
    assert pairwise_cover(FULL) == cover
