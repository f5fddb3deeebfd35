"""Some combinations of settings in which every pair of values occurs, for `make test`; `make test-all` runs all.

A mistake shows nearly always in one value, or in two values that meet (Kuhn, Wallace and Gallo: Software Fault
Interactions and Implications for Software Testing, 2004). What only three values do together is for `thorough`.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import combinations

import pytest

Settings = Mapping[str, Hashable]


def pairs(settings: Settings) -> set[frozenset[tuple[str, Hashable]]]:
    """Every two of the settings, each with its value; where there is only one setting, that one."""
    items = settings.items()
    return {frozenset(pair) for pair in combinations(items, 2)} or {frozenset(items)}


def pairwise_cover(rows: Iterable[Settings]) -> list[Settings]:
    """Some of the rows, in their order, in which every pair of values occurs that occurs in any row.

    Greedy: the next row is the first of those with the most pairs that no row chosen before has.
    """
    pairs_of = [(row, pairs(row)) for row in rows]
    missing = set().union(*(found for _, found in pairs_of))
    chosen: list[Settings] = []
    while missing:
        row, found = max(pairs_of, key=lambda row_and_pairs: len(row_and_pairs[1] & missing))
        chosen.append(row)
        missing -= found
    return [row for row, _ in pairs_of if row in chosen]


def each(argument: str, rows: Iterable[Settings], name: Callable[[Settings], str]) -> pytest.MarkDecorator:
    """Run a test with each of the rows; those that the pairwise cover does without are thorough."""
    rows = list(rows)
    cover = pairwise_cover(rows)
    cases = [pytest.param(row, id=name(row), marks=() if row in cover else pytest.mark.thorough) for row in rows]
    return pytest.mark.parametrize(argument, cases)
