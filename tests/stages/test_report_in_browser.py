"""The page of `report` in a real browser: it complains of nothing, loads nothing, and a telephone shows it."""

import pytest
from helpers.browser import NAMES, installed, opened

from transformer_mt import report

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(installed() is None, reason=f"needs a browser: one of {', '.join(NAMES)}"),
]


@pytest.fixture(scope="module")
def tab(model_dir, trained, tmp_path_factory):
    directory = tmp_path_factory.mktemp("browser")
    page = directory / "report.html"
    assert report.main([str(trained), str(model_dir), "--output", str(page)]) == 0
    with opened(directory / "profile") as found:
        found.open(page)
        yield found


@pytest.fixture(autouse=True)
def no_complaint_and_no_request(tab):
    yield
    assert tab.value("1") == 1  # all events before this one have come
    assert tab.complaints() == []
    kinds = [url.split(":")[0] for url in tab.requested()]
    assert kinds.count("file") == 1 and set(kinds) <= {"file", "data"}, "the page, and pictures that are in it"


def test_a_telephone_shows_the_page_without_scrolling_sideways(tab):
    tab.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    assert tab.value("document.documentElement.scrollWidth") == 360


def test_no_labels_of_ticks_lie_on_one_another(tab):
    """Nor on a telephone."""
    tab.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    overlaps = """[...document.querySelectorAll('.chart > svg')].flatMap(svg => {
        const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
        return boxes.flatMap(([one, a], at) => boxes.slice(at + 1).filter(([, b]) =>
            a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
        ).map(([other]) => `${one} and ${other}`));
    }).join('; ')"""
    assert tab.value("document.querySelectorAll('.chart > svg text').length") > 50
    assert tab.value(overlaps) == ""


def test_letters_on_a_telephone_are_large_enough_to_read(tab):
    tab.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    heights = "[...document.querySelectorAll('.chart > svg text')].map(t => t.getBoundingClientRect().height)"
    assert min(tab.value(heights)) > 8
