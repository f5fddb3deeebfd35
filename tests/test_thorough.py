"""The covers by which `make test` thins full products."""

from itertools import product

import pytest
from helpers.thorough import cover, meetings

FULL = [{"a": a, "b": b, "c": c, "d": d} for a, b, c, d in product("abcde", range(3), range(3), [False, True])]
CONSTRAINED = [row for row in FULL if row["a"] != "e" or row["b"] == 0]


@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("rows", [FULL, CONSTRAINED, FULL[:1], [{"a": 1}, {"a": 2}]])
def test_all_values_that_meet_anywhere_meet_in_the_cover(rows, together):
    chosen = cover(rows, together)
    found, expected = (set().union(*(meetings(row, together) for row in some)) for some in (chosen, rows))
    assert found == expected
    assert all(row in rows for row in chosen)


def test_the_cover_is_far_smaller_than_the_product_and_always_the_same():
    pairwise = cover(FULL)
    assert 15 <= len(pairwise) <= 20  # 5 × 3 pairs of the two longest lists are the least
    assert len(cover(FULL, together=1)) == 5  # the values of the longest list
    assert len(FULL) == 90
    assert cover(FULL) == pairwise
