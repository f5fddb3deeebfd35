"""Pictures are where their numbers are."""

import re

import numpy as np
import pytest

from transformer_mt.reporting import charts
from transformer_mt.reporting.gathered import Curve


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (3, 3), (0, 0), (-5, 7), (1e-9, 2e-9), (0.00002, 0.003), (1, 1_000_000), (-1e30, 1e30)]
)
def test_the_marks_of_an_axis_are_round_few_and_around_all_values(low, high):
    ticks = charts.nice(low, high)
    assert 2 <= len(ticks) <= 7
    assert ticks[0] <= low <= high <= ticks[-1]
    steps = np.diff(ticks)
    np.testing.assert_allclose(steps, steps[0])
    assert f"{steps[0]:e}"[0] in "125"


def test_a_line_leads_from_value_to_value_and_leaves_gaps():
    curve = Curve([0, 10, 20, 30, 40], [0.0, 10.0, None, 5.0, None])
    [line] = charts.lines("key", "title", {"run": (3, curve)}).lines
    assert line.path == f"M{charts.LEFT} {charts.BOTTOM}L139 {charts.TOP}"
    assert line.dots == [(305.0, (charts.TOP + charts.BOTTOM) / 2)]
    assert line.number == 3


def test_what_the_script_reads_are_the_values_themselves():
    curve = Curve([1, 2], [0.12345678901234567, None])
    [series] = charts.lines("key", "title", {"run": (0, curve)}).numbers["series"]
    assert series == {"name": "run", "steps": [1, 2], "values": [0.12345678901234567, None]}


def test_bars_are_as_long_as_their_values():
    chart = charts.bars("title", [("a", [("x", 0, 40.0), ("y", 1, 10.0)]), ("b", [("x", 0, 0.0)])])
    lengths = [bar.length for _, _, group in chart.groups for bar in group]
    assert lengths[0] == pytest.approx(4 * lengths[1]) and lengths[2] == 0
    tops = [bar.top for _, _, group in chart.groups for bar in group]
    assert tops == sorted(set(tops)) and tops[-1] < chart.height


def test_the_cells_of_a_map_have_the_shades_of_their_numbers():
    table_RC = np.random.default_rng(1).normal(size=(7, 9))
    map_ = charts.map_of(table_RC)
    found_RC = np.zeros((7, 9), dtype=int)
    for level, path in map_.paths:
        for column, row, size in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", path):
            assert (found_RC[int(row), int(column) : int(column) + int(size)] == 0).all()
            found_RC[int(row), int(column) : int(column) + int(size)] = level
    np.testing.assert_array_equal(found_RC, (table_RC / abs(table_RC).max() * charts.LEVELS).round())


@pytest.mark.parametrize(
    ("number", "text"), {0: "0", 0.5: "0.5", 9_000: "9000", 20_000: "20k", 1_500_000: "1.5M", 2e9: "2G"}.items()
)
def test_numbers_of_axes_are_short(number, text):
    assert charts.short(number) == text
