"""The files of the translation server's page: small, complete, and safe under a strict policy."""

import re

from helpers.web_page import WebPage

from transformer_mt import serving

PAGE = next(iter(serving.__path__)) + "/page"
FILES = ("index.html", "page.css", "page.js")


def read(name: str) -> str:
    with open(f"{PAGE}/{name}", encoding="utf-8", newline="") as file:
        return file.read()


def test_the_page_is_small():
    assert sum(len(read(name).encode()) for name in FILES) <= 60_000


def test_the_page_loads_only_its_own_files():
    page = WebPage(read("index.html"))
    assert sorted(page.loaded()) == ["page.css", "page.js"]
    for name in FILES:
        assert not re.search(r"https?://|url\(|@import|\bimport\b", read(name)), name


def test_a_policy_without_inline_scripts_and_styles_forbids_nothing_of_the_page():
    page = WebPage(read("index.html"))
    assert page.programs() == ["script"] and page.styles == []
    for tag, attributes in page.elements:
        assert "style" not in attributes, tag
        assert tag != "script" or attributes["src"]
    assert not re.search(r"<(script|style)[^>]*>[^<]", read("index.html"))
    assert not re.search(r"setAttribute\(.style|\.cssText|\beval\b|new Function|setTimeout\(['\"]", read("page.js"))


def test_text_is_never_put_in_as_html():
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|parseFromString|createContextualFragment|srcdoc"
    )
    assert not re.search(forbidden, "".join(map(read, FILES)))


def test_the_script_finds_every_element_that_it_names():
    named = set(re.findall(r'\$\("([\w-]+)"\)', read("page.js")))
    found = {attributes["id"] for _, attributes in WebPage(read("index.html")).elements if "id" in attributes}
    assert named and named <= found
