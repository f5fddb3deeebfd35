"""Converts the formulas of the documentation's site to MathML, which browsers draw without a script.

This is a hook of MkDocs (see mkdocs.yml): the extension arithmatex marks the formulas, and latex2mathml converts them.
"""

import html as html_text
import re

from latex2mathml.converter import convert

DISPLAY = {"(": "inline", "[": "block"}
MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.DOTALL)


def on_page_content(html: str, **_: object) -> str:
    """Return the HTML of a page with its formulas as MathML. MkDocs passes further keyword arguments."""
    return MARKED.sub(lambda marked: convert(html_text.unescape(marked[3]), display=DISPLAY[marked[2]]), html)
