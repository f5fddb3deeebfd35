"""Writes the formulas of the documentation's site as MathML, which browsers draw without a script.

A hook of MkDocs (mkdocs.yml): its extension arithmatex marks the formulas, and latex2mathml converts them.
"""

import html as html_text
import re

from latex2mathml.converter import convert

DISPLAY = {"(": "inline", "[": "block"}
MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.DOTALL)


def on_page_content(html: str, **_: object) -> str:
    """The HTML of a page, with its formulas as MathML. MkDocs gives more arguments by name."""
    return MARKED.sub(lambda marked: convert(html_text.unescape(marked[3]), display=DISPLAY[marked[2]]), html)
