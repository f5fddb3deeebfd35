"""The search of the site leads from the words that people type to the page that answers."""

import functools
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import site_search
from helpers import browser
from helpers.tiny import ROOT

FIRST = {
    "out of memory": "troubleshooting.html#training",
    "cuda oom": "troubleshooting.html#training",
    "debugger": "one_update.html#in-a-debugger",
    "breakpoint": "one_update.html#in-a-debugger",
    "significance": "evaluating.html#is-it-better",
    "p-value": "evaluating.html#is-it-better",
    "multilingual": "data.html#several-corpora-tags-and-weights",
    "cite": "index.html#citing-licence-contributing",
    "license": "index.html#citing-licence-contributing",
    "contribute": "index.html#citing-licence-contributing",
    "glossary": "real_text.html#terms",
    "onnx": "exporting.html#ctranslate2",
    "mixed precision": "training.html#number-formats",
    "multi-gpu": "distributed.html",
    "domain adaptation": "fine_tuning.html",
    "low-resource": "recipes.html",
    "install": "getting_started.html",
    "training.peak_lr": "settings.html",
    "subtitles": "real_text.html#subtitles-and-gettext",
    "docker": "serving.html#in-a-container",
}
# What the page of a search does: it asks a worker, which answers with groups of sections, the best group first.
SEARCH = """(async () => {
  const {config, docs} = await (await fetch("search/search_index.json")).json()
  const path = JSON.parse(document.getElementById("__config").textContent).search
  const worker = new Worker(path)
  const ask = message => new Promise(answered => {
    worker.onmessage = event => answered(event.data)
    worker.postMessage(message)
  })
  await ask({type: 0, data: {config, docs, options: {suggest: false}}})
  const first = {}
  for (const words of WORDS) {
    const [group] = (await ask({type: 2, data: words})).data.items
    first[words] = group === undefined ? null : group[0].location
  }
  return first
})()"""


def test_words_belong_to_the_section_of_their_comment():
    page = """<h1 id="top">Top</h1> <!-- found by: a page -->
    <h2 id="one">One</h2> <p>text</p> <h2 id="two">Two</h2> <!-- code: x --> <!-- found by: b,
    p-value -->"""
    assert site_search.words_of(page) == {"top": ["a page"], "two": ["b", "p-value"]}


def test_sections_get_their_words_and_lists_less_weight():
    places = ["data.html", "data.html#one", "api.html", "api.html#x", "settings.html"]
    sections = [{"location": place} for place in places]
    site_search.add({"data.html#top": ["a"], "data.html#one": ["b"]}, sections)
    assert [section.get("tags") for section in sections] == [["a"], ["b"], None, None, None]
    assert ["boost" in section for section in sections] == [False, False, True, True, False]
    with pytest.raises(KeyError, match=r"other\.html"):
        site_search.add({"other.html#top": ["a"]}, sections)


def test_a_page_has_each_comment_below_a_heading_of_its_own():
    for path in (ROOT / "docs").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        comments = re.findall(r"<!-- found by: (.*?) -->", text, flags=re.DOTALL)
        assert len(comments) == len(re.findall(r"^<!-- found by: .* -->$", text, flags=re.MULTILINE)), path.name
        for words in comments:
            assert all(re.fullmatch(r"[\w-]+( [\w-]+)*", word) for word in words.split(", ")), words


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The built site."""
    for name in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(name, reason="`make docs` installs what builds the site")
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", directory]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def tab(site, tmp_path_factory) -> Iterator[browser.Tab]:
    """A browser with the first page of the site, which a server gives it."""
    if browser.installed() is None:
        pytest.skip("a browser (Chromium or Chrome) is not installed")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(SimpleHTTPRequestHandler, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with browser.opened(tmp_path_factory.mktemp("browser")) as tab:
            tab.open(f"http://127.0.0.1:{server.server_port}/index.html")
            yield tab
        server.shutdown()


@pytest.mark.slow
def test_the_index_of_the_search_has_every_word_where_its_page_says(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    tags = [tag for section in index["docs"] for tag in section.get("tags", [])]
    said = [
        word
        for path in (ROOT / "docs").glob("*.md")
        for words in re.findall("<!-- found by: (.*?) -->", path.read_text(encoding="utf-8"))
        for word in words.split(", ")
    ]
    assert sorted(tags) == sorted(said)


@pytest.mark.slow
def test_the_search_finds_the_page_that_answers_first(tab):
    assert tab.value(SEARCH.replace("WORDS", json.dumps(list(FIRST)))) == FIRST


def has_font_for_formulas() -> bool:
    """Whether one of the fonts in site.css is installed."""
    if shutil.which("fc-list") is None:
        return False
    css = (ROOT / "docs" / "site.css").read_text(encoding="utf-8")
    named = re.findall('"(.*? Math.*?)"', css)
    assert len(named) > 3
    found = subprocess.run(["fc-list", ":", "family"], capture_output=True, text=True, check=False)
    return any(name in found.stdout for name in named)


@pytest.mark.slow
def test_formulas_are_drawn_by_a_font_for_formulas(tab):
    """Subscripts are below their letter, and parentheses are as high as what they enclose."""
    if not has_font_for_formulas():
        pytest.skip("no font for formulas is installed")
    tab.open(tab.value("new URL('one_update.html', location).href"))
    heights = """[...document.querySelectorAll("math mfrac")].map(fraction => {
      const before = fraction.previousElementSibling
      return before && before.textContent === "(" ? [before, fraction].map(e => e.getBoundingClientRect().height) : null
    }).filter(each => each)"""
    found = tab.value(heights)
    assert found and all(parenthesis >= 0.9 * fraction for parenthesis, fraction in found), found
    lowered = """[...document.querySelectorAll("msub")].map(
      ({children: [base, sub]}) => sub.getBoundingClientRect().bottom - base.getBoundingClientRect().bottom)"""
    assert min(tab.value(lowered)) > 1
