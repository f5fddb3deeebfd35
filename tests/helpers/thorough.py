"""What `make test` leaves to `make test-all` and `make test-slow`: some values of a parameter, most rows of a product.

A mistake shows nearly always in one value, or in two values that meet (Kuhn, Wallace and Gallo: Software Fault
Interactions and Implications for Software Testing, 2004). Of a full product `make test` therefore runs only a few
rows, in which every pair of values occurs, `make test-all` also rows for every three values, and `make test-slow` the
others. A test with two values that only `make test-all` runs is left to `make test-slow` (conftest.py).
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import combinations, product

import pytest

Row = Mapping[str, Hashable]


def thorough(*values: object) -> list[object]:
    """Values of a parameter that only `make test-all` runs, to stand beside those that `make test` runs too."""
    return [pytest.param(value, marks=pytest.mark.thorough) for value in values]


def thorough_rows(*rows: tuple[object, ...]) -> list[object]:
    """Values of several parameters at once that only `make test-all` runs."""
    return [pytest.param(*row, marks=pytest.mark.thorough) for row in rows]


def pairwise(together: int = 2, **values: Iterable[Hashable]) -> pytest.MarkDecorator:
    """Run a test with the product of the values of these parameters; what the cover leaves out is thorough or slow."""
    rows = [dict(zip(values, row, strict=True)) for row in product(*values.values())]
    return pytest.mark.parametrize(
        list(values), [pytest.param(*row.values(), marks=mark) for row, mark in marked(rows, together)]
    )


def each(parameter: str, rows: Iterable[Row], name: Callable[[Row], str], together: int = 2) -> pytest.MarkDecorator:
    """Run a test with each row as the value of one parameter; what the cover leaves out is thorough.

    With together=1 every value occurs, but not every pair of them: enough where a property hardly knows the parameters.
    """
    return pytest.mark.parametrize(
        parameter, [pytest.param(row, id=name(row), marks=mark) for row, mark in marked(rows, together)]
    )


def marked(rows: Iterable[Row], together: int = 2) -> list[tuple[Row, pytest.MarkDecorator | tuple[()]]]:
    """Each row, with the mark thorough unless it is in the cover; slow if not even in that of one more value."""
    rows = list(rows)
    chosen, more = cover(rows, together), cover(rows, together + 1)
    rest = {True: pytest.mark.thorough, False: pytest.mark.slow}
    return [(row, () if row in chosen else rest[row in more]) for row in rows]


def cover(rows: Iterable[Row], together: int = 2) -> list[Row]:
    """Some of the rows, in their order, in which all `together` values meet that meet in any row.

    Greedy: the next row is the first of those with the most meetings that no row chosen before has.
    """
    meetings_of = [(row, meetings(row, together)) for row in rows]
    missing = set().union(*(found for _, found in meetings_of))
    chosen: list[Row] = []
    while missing:
        row, found = max(meetings_of, key=lambda row_and_meetings: len(row_and_meetings[1] & missing))
        chosen.append(row)
        missing -= found
    return [row for row, _ in meetings_of if row in chosen]


def meetings(row: Row, together: int = 2) -> set[frozenset[tuple[str, Hashable]]]:
    """Every `together` parameters, each with its value; where there are fewer parameters, all of them."""
    return {frozenset(values) for values in combinations(row.items(), together)} or {frozenset(row.items())}
