"""Pictures of the page are where their numbers are, and their colours are those of the page."""

import re

import numpy as np
import pytest
from helpers.web_page import WebPage

from transformer_mt.reporting import charts

pytest.importorskip("matplotlib")


def paths(chart, colour):
    """The corners of the lines or bars of a colour, in the order in which they are drawn."""
    found = re.findall(rf'<path d="([^"]*)"[^>]*style="[^"]*: {colour}', chart.svg)
    return [np.array(re.findall(r"[ML] (\S+) (\S+)", path), float) for path in found]


def test_a_line_leads_from_value_to_value_and_leaves_gaps():
    chart = charts.lines("key", "title", {"run": (3, ([0, 10, 20, 30, 40], [0.0, 10.0, None, 5.0, None]))})
    [path] = re.findall(r'<path d="([^"]*)"[^>]*stroke: #8a2fa8; stroke-width: 1.5', chart.svg)
    assert re.sub(r"[^A-Z]", "", path) == "MLM", "a line, a gap, and a point of its own"
    [first, second, third] = np.array(re.findall(r"[ML] (\S+) (\S+)", path), float)
    assert first[0] < second[0] and first[1] > second[1], "up, where the numbers of SVG fall"
    assert third == pytest.approx([first[0] + 3 * (second[0] - first[0]), (first[1] + second[1]) / 2], abs=1e-3)
    marks = re.findall(r'<use [^>]*x="(\S+)" y="(\S+)"[^>]*#8a2fa8', chart.svg)
    assert np.array_equal(np.array(marks, float), [first, second, third]), "few points are marked"
    assert chart.descriptions == [("run", 3, "0 at update 0, 5 at update 30")]


def test_a_long_curve_is_short_in_the_page_and_keeps_its_peaks():
    values = [5.0 + np.sin(step) for step in range(100_000)]
    values[33_333] = 99.0
    chart = charts.lines("key", "title", {"run": (0, (list(range(100_000)), values))})
    assert len(chart.svg) < 200_000
    [line] = paths(chart, "#0b66c2")
    [usual] = paths(charts.lines("key", "title", {"run": (0, ([0, 1], [4.0, 99.0]))}), "#0b66c2")
    assert line[:, 1].min() == pytest.approx(usual[:, 1].min(), abs=1.0)


@pytest.mark.parametrize("values", [[1e100, -1e100], [0.0, 0.0], [1e-9, 2e-9], [None, None], [3.0]])
def test_any_values_are_drawn(values):
    """A warning of matplotlib would be an error here."""
    chart = charts.lines("key", "title", {"run": (0, (list(range(len(values))), values))}, marks=[(2**53, 0)])
    assert chart.svg.startswith("<svg ") and ("no finite value" in chart.svg) == (values == [None, None])


def test_text_is_text_and_all_colours_are_the_page_s():
    chart = charts.lines("key", "title", {"<b>": (0, ([0, 1], [4.0, 99.0]))})
    page = WebPage(chart.svg)
    assert "update" in [text.strip() for text in page.texts]
    colours = set(re.findall("#[0-9a-f]{6}", " ".join(str(a.get("style")) for _, a in page.elements)))
    assert colours == {"#56616e", "#d5dbe1", "#0b66c2"}
    assert not [tag for tag, _ in page.elements if tag in ("style", "metadata", "b")]


def test_no_two_pictures_have_parts_of_the_same_name():
    names = []
    for key in ("one", "other"):
        curves = charts.lines(key, "title", {"run": (0, ([1, 2], [1.0, 2.0]))})
        names += [attributes["id"] for _, attributes in WebPage(curves.svg).elements if "id" in attributes]
    assert len(names) > 4 and len(set(names)) == len(names)
    assert re.findall(r"url\(#([^)]*)\)", curves.svg)[0] in names
