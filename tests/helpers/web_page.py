"""Reads a page of HTML: its elements, its text, and what it would load or run."""

import re
from html.parser import HTMLParser
from pathlib import Path

LOADING = {"src", "href", "xlink:href", "action", "data", "poster", "srcset", "background", "formaction"}


class WebPage(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        """The text of all elements, but of styles."""
        self.styles: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    @classmethod
    def read(cls, path: Path) -> "WebPage":
        return cls(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        (self.styles if self._inside == "style" else self.texts).append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def loaded(self) -> list[str]:
        """Everything that a browser would fetch, or that leads to another page."""
        found = [str(attributes[name]) for _, attributes in self.elements for name in LOADING & attributes.keys()]
        inline = [*self.styles, *(str(attributes.get("style", "")) for _, attributes in self.elements)]
        found += [url for text in inline for url in re.findall(r"url\(([^)]*)\)|@import\s+(\S+)", text)]
        return [url for url in found if not str(url).startswith(("#", "data:"))]

    def programs(self) -> list[str]:
        """Scripts, and attributes that a browser would run."""
        handlers = [name for _, attributes in self.elements for name in attributes if name.startswith("on")]
        return handlers + [tag for tag, _ in self.elements if tag == "script"]
