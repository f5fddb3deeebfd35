"""The page of `report` in a real browser: it complains of nothing, loads nothing, and keys do what the mouse does."""

import base64

import numpy as np
import pytest
from helpers.browser import NAMES, installed, opened

from transformer_mt import report

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(installed() is None, reason=f"needs a browser: one of {', '.join(NAMES)}"),
]

LEFT, UP, RIGHT, DOWN = (("ArrowLeft", 37), ("ArrowUp", 38), ("ArrowRight", 39), ("ArrowDown", 40))
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
    assert [url.split(":")[0] for url in tab.requested()] == ["file", "data"][: len(tab.requested())]


def chosen(tab, name, value):
    """Choose from a list as the browser does after a key or a click."""
    tab.value(
        f"(s => {{ s.value = '{value}'; s.dispatchEvent(new Event('change')); }})(document.getElementById('{name}'))"
    )


def text(tab, name):
    return tab.value(f"document.getElementById('{name}').textContent")


def test_the_arrow_keys_read_the_values_of_a_curve(tab):
    data = tab.value("JSON.parse(document.getElementById('numbers').textContent).charts['curve-loss'].series[0]")
    tab.value("document.querySelector('[data-chart=\"curve-loss\"]').focus()")
    read = "document.querySelector('[data-chart=\"curve-loss\"]').parentElement.querySelector('output').textContent"
    assert tab.value(read).endswith(f"at update {data['steps'][-1]}")
    tab.press(*LEFT)
    assert tab.value(read) == f"{data['name']}: {data['values'][-2]:.4g} at update {data['steps'][-2]}"
    tab.press("Home", 36)
    assert tab.value(read).endswith(f": {data['values'][0]:.4g} at update {data['steps'][0]}")


def test_layers_and_heads_are_chosen_and_cells_are_read_by_keys(tab):
    chosen(tab, "attention-sentence", 0)
    opacities = "[...document.querySelectorAll('#cross .cell')].map(c => c.getAttribute('fill-opacity')).join()"
    pictures = set()
    for layer in ("0", "1"):
        for head in ("0", "1", "2"):
            chosen(tab, "cross-layer", layer)
            chosen(tab, "cross-head", head)
            pictures.add(tab.value(opacities))
    assert len(pictures) == 6
    tab.value("document.getElementById('cross').focus()")
    for key in (RIGHT, DOWN, DOWN, RIGHT, UP):
        tab.press(*key)
    shown = tab.value("JSON.parse(document.getElementById('numbers').textContent).sentences[0].cross")
    row, column = (shown[side][at].replace("▁", "·") for side, at in (("rows", 1), ("columns", 2)))
    weights = np.frombuffer(base64.b64decode(shown["weights"]), dtype=np.uint8)
    weight = weights.reshape(shown["layers"], shown["heads"], len(shown["rows"]), -1)[1, 1, 1, 2] / 255
    assert text(tab, "cross-read") == f"{row} looks at {column}: {weight:.2f}"


def test_a_word_is_chosen_by_keys_and_its_weights_sum_to_one(tab):
    chosen(tab, "attention-sentence", 0)
    tab.value("document.querySelector('#self button').focus()")
    tab.press(*DOWN)
    assert tab.value("document.activeElement.textContent") == "child"
    assert text(tab, "self-read").startswith("child looks at ")
    widths = (
        "[...document.querySelectorAll('#self path')].reduce((s, p) => s + Number(p.getAttribute('stroke-width')), 0)"
    )
    assert tab.value(widths) == pytest.approx(9, abs=0.3)
    chosen(tab, "self-side", "decoder")
    assert tab.value("document.querySelector('#self .seen li').textContent") == "<s>"


def test_text_that_looks_like_a_script_is_shown(tab):
    chosen(tab, "attention-sentence", 1)
    assert SENTENCES[1] in tab.value("document.getElementById('attention-sentence').selectedOptions[0].textContent")
    assert tab.value("document.scripts.length") == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_shows_the_page_without_scrolling_sideways(tab, scheme):
    tab.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    assert tab.value("document.documentElement.scrollWidth") == 360
    colours = [tab.value(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor")]
    ink, paper = (sum(map(int, colour[4:-1].split(","))) for colour in colours)
    assert (ink < 200 < 700 < paper) if scheme == "light" else (paper < 200 < 600 < ink)


def test_no_labels_of_ticks_lie_on_one_another(tab):
    """Nor those of many updates, on a telephone, where letters are larger."""
    tab.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    tab.value("document.querySelectorAll('svg.lines .tick[text-anchor=middle]').forEach(t => t.textContent = '100k')")
    overlaps = """[...document.querySelectorAll('svg.lines')].flatMap(svg => {
        const boxes = [...svg.querySelectorAll('.tick')].map(t => [t.textContent, t.getBoundingClientRect()]);
        return boxes.flatMap(([one, a], at) => boxes.slice(at + 1).filter(([, b]) =>
            a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
        ).map(([other]) => `${one} and ${other}`));
    }).join('; ')"""
    assert tab.value("document.querySelectorAll('svg.lines .tick').length") > 50
    assert tab.value(overlaps) == ""
