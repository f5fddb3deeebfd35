"""A server as users start it: a process, and requests to it over HTTP."""

import json
import re
import shutil
import signal
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.processes import Running, ended, kill, said, start, wait_until
from helpers.tiny import renew_sums

requests = pytest.importorskip("requests")


@dataclass(frozen=True)
class Server:
    """A process that serves, and the address that it announced."""

    running: Running
    url: str

    def get(self, path: str, **arguments) -> requests.Response:
        return requests.get(self.url + path, timeout=60, **arguments)

    def post(self, path: str, **arguments) -> requests.Response:
        return requests.post(self.url + path, timeout=60, **arguments)

    def translated(self, q, **fields):
        """The answer of /translate, which must be one."""
        response = self.post("/translate", json={"q": q, "source": "en", "target": "de"} | fields)
        assert response.status_code == 200, response.text
        return response.json()

    def signal(self, number: signal.Signals) -> None:
        self.running.process.send_signal(number)

    def log(self) -> list[dict]:
        """The lines of the log that are objects, so far."""
        lines = self.running.err.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def logged(self, **fields) -> dict:
        """Wait for a line of the log with these fields."""
        found = []

        def is_there() -> bool:
            found[:] = [line for line in self.log() if fields.items() <= line.items()]
            return bool(found)

        wait_until(is_there, self.running)
        return found[0]


@contextmanager
def serving(directory: Path, *arguments: object, while_loading: Callable[[Running], None] | None = None):
    """Serve with these arguments on a free port, and end the server if the test does not."""
    running = start(directory, "server", "-m", "transformer_mt.serve", *arguments, "--port", 0, "--device", "cpu")
    try:
        if while_loading is not None:
            while_loading(running)
        wait_until(lambda: "serving" in running.out.read_text(), running)
        yield Server(running, re.search(r"http://[\d.]+:\d+", running.out.read_text())[0])
        if running.process.poll() is None:
            running.process.terminate()
            assert ended(running) == [128 + signal.SIGTERM], said(running)
    finally:
        kill(running)


def turned_round(model_dir: Path, directory: Path) -> Path:
    """A copy of a model from English to German that claims to translate from German to English."""
    copy = shutil.copytree(model_dir, directory / "de-en" / "model")
    config = (copy / "config.yaml").read_text()
    for before, after in (
        ("source_language: en", "source_language: de"),
        ("target_language: de", "target_language: en"),
    ):
        assert before in config
        config = config.replace(before, after)
    (copy / "config.yaml").write_text(config)
    renew_sums(copy)
    return copy
