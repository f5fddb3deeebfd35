"""The words of docs/model.svg have room, also in the wide fonts of a browser on Linux."""

import pytest
from helpers import browser
from helpers.tiny import ROOT

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(browser.installed() is None, reason="a browser (Chromium or Chrome) is not installed"),
]
ROOM = 5  # the fewest pixels between words and what is beside them
# Pairs of words that are too near to each other, to the edge of their box, or to a line.
TOO_NEAR = """(room => {
  const grown = (box, by) =>
    ({left: box.left - by, right: box.right + by, top: box.top, bottom: box.bottom})
  const meets = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
  const texts = [...document.querySelectorAll("text")]
  const boxes = texts.map(text => grown(text.getBoundingClientRect(), room))
  const is_seen = (path, x, y) => {  // not behind a box
    const layers = document.elementsFromPoint(x, y), depth = layers.indexOf(path)
    return depth < 0 || !layers.slice(0, depth).some(layer => layer.tagName === "rect")
  }
  const found = []
  texts.forEach((text, i) => {
    const rect = text.parentElement.querySelector(":scope > rect.box")?.getBoundingClientRect()
    if (rect && (boxes[i].left < rect.left || boxes[i].right > rect.right)) found.push([text.textContent, "its box"])
    texts.forEach((other, k) => {
      if (k > i && meets(boxes[i], other.getBoundingClientRect())) found.push([text.textContent, other.textContent])
    })
    for (const path of document.querySelectorAll("path.line")) {
      const matrix = path.getScreenCTM()
      for (let at = 0; at <= path.getTotalLength(); at += 1) {
        const {x, y} = path.getPointAtLength(at).matrixTransform(matrix)
        if (meets(boxes[i], {left: x, right: x, top: y, bottom: y}) && is_seen(path, x, y)) {
          found.push([text.textContent, path.getAttribute("d")])
          break
        }
      }
    }
  })
  return found
})"""


@pytest.mark.parametrize("font", ["", "DejaVu Sans", "Liberation Sans"])
def test_words_keep_away_from_edges_lines_and_other_words(font, tmp_path):
    """A font that is not installed is drawn in another one, which has to fit, too."""
    text = (ROOT / "docs" / "model.svg").read_text(encoding="utf-8")
    text = text.replace("<svg ", '<svg width="720" height="672" ', 1)  # else it fills the window
    assert text.count("13px system-ui,") == 1 and 'viewBox="0 0 720 672"' in text
    picture = tmp_path / "model.svg"
    picture.write_text(text.replace("13px system-ui,", f'13px "{font}",') if font else text, encoding="utf-8")
    with browser.opened(tmp_path / "browser") as tab:
        tab.call("Emulation.setDeviceMetricsOverride", width=720, height=672, deviceScaleFactor=1, mobile=False)
        tab.open(picture)
        assert tab.value(f"{TOO_NEAR}({ROOM})") == []
