"""The page of `report` in a real browser: it complains of nothing, loads nothing, and a telephone shows it."""

import pytest
from helpers.browser import NAMES, installed, opened

from transformer_mt import report

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(installed() is None, reason=f"needs a browser: one of {', '.join(NAMES)}"),
]

RIGHT = ("ArrowRight", 39)
SENTENCES = ["The child is sleeping.", "He sees </script><script>alert(1)</script> the house."]


@pytest.fixture(scope="module")
def tab(model_dir, trained, tmp_path_factory):
    directory = tmp_path_factory.mktemp("browser")
    sentences = [word for sentence in SENTENCES for word in ("--sentence", sentence)]
    page = directory / "report.html"
    assert report.main([str(trained), str(model_dir), *sentences, "--output", str(page)]) == 0
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


def shown(tab):
    """The names of all maps of attention of the first sentence that are shown."""
    names = "[...document.querySelectorAll('image')].filter(i => i.checkVisibility()).map(i => i.id)"
    return [name for name in tab.value(names) if name.startswith("s0-")]


def test_one_layer_and_head_of_each_kind_is_shown_and_others_are_chosen_by_keys(tab):
    layers = tab.value("document.querySelectorAll('[name=s0-cross-layer]').length")
    usual = max(layers - 1, 1)
    assert shown(tab) == [f"s0-{kind}-{usual}-0" for kind in ("cross", "encoder", "decoder")]
    tab.value("document.querySelector('[name=s0-cross-head]').focus()")
    tab.press(*RIGHT)
    assert shown(tab)[0] == f"s0-cross-{usual}-1"
    tab.value("document.querySelector('[name=s0-encoder-layer]:checked').focus()")
    tab.press(*RIGHT)
    assert shown(tab)[:2] == [f"s0-cross-{usual}-1", f"s0-encoder-{usual % layers + 1}-0"], "each kind by itself"


def test_text_that_looks_like_a_script_is_shown(tab):
    assert SENTENCES[1] in tab.value("document.getElementById('attention').textContent")
    assert tab.value("document.scripts.length") == 0


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
