"""A small HTTP server that gives the page of the translation server, and answers what it asks from a list."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Thread
from typing import Any

from transformer_mt.base.doubts import doubts, numbers

PAGE = files("transformer_mt.serving") / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
KINDS = {
    "": ("index.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
}
LANGUAGES = [
    {"code": "en", "name": "English", "targets": ["de", "en", "zh"]},
    {"code": "de", "name": "German", "targets": ["de", "en"]},
    {"code": "zh", "name": "Chinese", "targets": []},
]
# Of each sentence the translations, best first, with their alignment.
TRANSLATIONS = {
    "The child is sleeping in the old house.": [
        ("Das Kind schläft in dem alten Haus.", "0-0 1-1 2-2 3-2 4-3 5-4 6-5 7-6"),
        ("Das Kind schläft im alten Haus.", "0-0 1-1 3-2 4-3 6-4 7-5"),
        ("Das Baby schläft im alten Haus.", "0-0 1-1 3-2 4-3 6-4 7-5"),
        ("Im alten Haus schläft das Kind.", "4-0 6-1 7-2 3-3 0-4 1-5"),
    ],
    "Nobody has opened its windows since 1987.": [
        ("Seit 1978 hat niemand seine Fenster geöffnet.", "5-0 6-1 1-2 0-3 3-4 4-5 2-6"),
        ("Niemand hat seit 1987 die Fenster geöffnet.", "0-0 1-1 5-2 6-3 3-4 4-5 2-6"),
    ],
    "In the morning, its grandmother brings a cup of tea.": [
        ("Am Morgen bringt seine Großmutter eine Tasse Tee.", "0-0 2-1 5-2 3-3 4-4 6-5 7-6 9-7"),
        ("Morgens bringt die Großmutter eine Tasse Tee.", "2-0 5-1 3-2 4-3 6-4 7-5 9-6"),
    ],
    "The dog waits at the door.": [
        ("Der Hund wartet an der Tür.", "0-0 1-1 2-2 3-3 4-4 5-5"),
        ("Der Hund wartet vor der Tür.", "0-0 1-1 2-2 3-3 4-4 5-5"),
        ("An der Tür wartet der Hund.", "3-0 4-1 5-2 2-3 0-4 1-5"),
    ],
}


@dataclass
class State:
    """What a test has the server do, and what the server was asked."""

    url: str = ""
    failures: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    """Status, headers and text of the next answers to translations."""
    settings: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, Any, dict[str, str]]] = field(default_factory=list)
    """Path, body and headers of each request that was not a GET."""
    delay: float = 0.0

    def translations(self) -> list[Any]:
        return [body for path, body, _ in self.asked if path == "/v1/translate"]


def _found(source: str, text: str, pairs: str, place: int) -> dict[str, Any]:
    before, after = numbers(source), numbers(text)
    missing, invented = [*(before - after).elements()], [*(after - before).elements()]
    alignment = [[int(number) for number in pair.split("-")] for pair in pairs.split()]
    fields = {"text": text, "score": -0.21 - 0.37 * place, "log_prob": -2.0 - place, "alignment": alignment}
    return fields | {"doubts": doubts(source, text), "numbers": {"missing": missing, "invented": invented}}


def _sentence(source: str, prefix: str, n_best: int, terms: dict[str, str], space: str = "") -> dict[str, Any]:
    known = TRANSLATIONS.get(source) or [(source.upper(), " ".join(f"{n}-{n}" for n in range(len(source.split()))))]
    known = [
        (re.sub("|".join(map(re.escape, terms)) or r"\Z", lambda found: terms.get(found[0], ""), t), p)
        for t, p in known
    ]
    begun = [(text, pairs) for text, pairs in known if text.startswith(prefix)]
    if not begun:
        rest = known[0][0].split()[len(prefix.split()) :]
        begun = [(" ".join([prefix, *rest]), known[0][1])]
    best, *others = (_found(source, text, pairs, place) for place, (text, pairs) in enumerate(begun[:n_best]))
    return {"source": source, "space": space, **best, "alternatives": others}


def _translated(text: str, prefix: str, asked: dict[str, Any]) -> dict[str, Any]:
    parts = re.findall(r"(\s*)(.+?(?:[.!?](?=\s)|$))", text) if asked.get("by_sentence") else [("", text)]
    terms = {term["source"].upper(): term["targets"][0] for term in asked.get("terms", [])}
    found = [_sentence(part, prefix, asked.get("n_best", 1), terms, space) for space, part in parts]
    return {"text": "".join(one["space"] + one["text"] for one in found), "sentences": found}


def _answer(path: str, body: Any) -> Any:
    if path == "/detect":
        is_german = re.search(r"\b(der|die|das|und)\b", body["q"].lower())
        return [{"confidence": 90, "language": "de" if is_german else "en"}]
    if path == "/translate_file":
        return {"translatedFileUrl": "/download_file/translated.txt"}
    prefixes = body.get("prefixes") or [""] * len(body["texts"])
    found = [_translated(text, prefix, body) for text, prefix in zip(body["texts"], prefixes, strict=True)]
    return {"source": body["source"], "target": body["target"], "model": "listed", "translations": found}


class _Handler(BaseHTTPRequestHandler):
    state: State

    def do_GET(self) -> None:
        name = self.path[1:]
        if name in KINDS:
            file, kind = KINDS[name]
            return self._send(200, kind, PAGE.joinpath(file).read_bytes())
        settings = {"charLimit": 2000, "frontendTimeout": 50, "keyRequired": False, "apiKeys": False} | {
            "filesTranslation": True,
            "supportedFilesFormat": [".txt", ".docx"],
            "language": {"source": {"code": "en", "name": "English"}, "target": {"code": "de", "name": "German"}},
        }
        known = {"languages": LANGUAGES, "frontend/settings": settings | self.state.settings}
        self._json(200 if name in known else 404, known.get(name, {"error": "there is no such page"}))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(content) if "json" in self.headers["Content-Type"] else content
        self.state.asked.append((self.path, body, dict(self.headers)))
        time.sleep(self.state.delay)
        if self.state.failures and self.path != "/detect":
            status, headers, text = self.state.failures.pop(0)
            return self._json(status, {"error": text}, headers)
        self._json(200, _answer(self.path, body))

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, "application/json", json.dumps(value).encode(), headers)

    def _send(self, status: int, kind: str, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        lines = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content))} | (headers or {})
        for name, value in (lines | {"Content-Security-Policy": POLICY}).items():
            self.send_header(name, value)
        with suppress(ConnectionError):  # the page has given the request up
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""


@contextmanager
def serving(port: int = 0) -> Iterator[State]:
    """Serve until the end of the block, at a free port of this machine."""
    state = State()
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}/"
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield state
        finally:
            server.shutdown()
