"""Makes the search of the documentation's site find pages by words that they do not contain, and guides before lists.

This is a hook of MkDocs (see mkdocs.yml). A comment in a section, as `<!-- found by: license, cite -->`, names words
for which people search. They become the section's tags in the index of the search, which count more than titles.
"""

import json
import re
from pathlib import Path
from typing import Any

LISTS = ("api.html", "design.html", "messages.html")
"""Pages that have nearly every word: with LESS weight, they are found last, unless no other page has the word."""
LESS = 0.001
HEADING_OR_WORDS = re.compile(r'<h[1-6] id="(.*?)"|<!-- found by: (.*?) -->', flags=re.DOTALL)

_words: dict[str, list[str]] = {}


def words_of(html: str) -> dict[str, list[str]]:
    """The words of each section of a page by the anchor of its heading."""
    anchor, found = "", dict[str, list[str]]()
    for heading, words in HEADING_OR_WORDS.findall(html):
        if words:
            found[anchor] = re.split(r",\s+", words)
        else:
            anchor = heading
    return found


def on_page_content(html: str, page: Any, **_: object) -> str:
    """Keep the words of a page; MkDocs passes its HTML, the page and further keyword arguments."""
    _words.update({f"{page.url}#{anchor}": words for anchor, words in words_of(html).items()})
    return html


def on_post_build(config: Any) -> None:
    """Write the words into the index of the search."""
    path = Path(config.site_dir) / "search" / "search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    add(_words, index["docs"])
    path.write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")


def add(words: dict[str, list[str]], sections: list[dict[str, Any]]) -> None:
    """Give sections of the index their words and weights. A page's first section has the page's address only."""
    by_location = {section["location"]: section for section in sections}
    for location, tags in words.items():
        section = by_location.get(location) or by_location[location.partition("#")[0]]
        section["tags"] = tags
    for section in sections:
        if section["location"].partition("#")[0] in LISTS:
            section["boost"] = LESS
