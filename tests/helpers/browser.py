"""A browser without a window, told what to do over a pipe by the DevTools protocol."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def installed() -> str | None:
    """The path of a browser of this family."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """An open page, and what it has reported."""

    def __init__(self, to_browser: int, from_browser: BufferedReader) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        os.write(
            self._to, json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        while (found := self._next()).get("id") != self._number:
            self.events.append(found)
        assert "result" in found, found
        return found["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = self._from.read1(65536)
            assert part, "the browser has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def open(self, page: Path | str) -> None:
        """Load a file or an address."""
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is, in the page, or what its promise brings."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press a key as a person does."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def complaints(self) -> list[dict[str, Any]]:
        """Messages of the console, errors, and violations of the page's policy."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event for event in self.events if event["method"] in kinds]

    def requested(self) -> list[str]:
        """The addresses of all that the page has asked for."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [parameters["request"]["url"] for parameters in sent]


@contextmanager
def opened(directory: Path) -> Iterator[Tab]:
    """Start a browser that keeps its files in a directory."""
    path = installed()
    assert path is not None
    (theirs_in, to_browser), (from_browser, theirs_out) = os.pipe(), os.pipe()
    flags = "--headless=new --no-sandbox --disable-gpu --disable-background-networking --remote-debugging-pipe"
    flags += " --disable-quic --no-first-run --disable-component-update --disable-sync"
    # It reads descriptor 3 and writes descriptor 4, which a shell gives it.
    command = f'exec "$0" {flags} --user-data-dir="$1" 3<&{theirs_in} 4>&{theirs_out} >/dev/null 2>&1'
    pipes = (theirs_in, theirs_out)
    with subprocess.Popen(["bash", "-c", command, path, str(directory)], pass_fds=pipes) as process:
        for pipe in pipes:
            os.close(pipe)
        try:
            with os.fdopen(from_browser, "rb") as answers:
                yield Tab(to_browser, answers)
        finally:
            os.close(to_browser)
            process.terminate()
