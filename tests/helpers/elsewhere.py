"""Servers on this machine that hold text: a real one of S3, one of HTTP, and what cuts the connections to them."""

import logging
import os
import random
import re
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

BUCKET = "text"
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing-secret", "AWS_DEFAULT_REGION": "us-east-1"}

# The server looks who signs, but not whether the signature is right.
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, Signature=0"}


class Cutter:
    """A port whose connections lead to another, and break off as long as `cuts` lasts.

    Each breaks after a random number of bytes from the server, in the middle of what it sends.
    """

    def __init__(self, port: int, most_bytes: int) -> None:
        self.cuts, self.num_cut, self._to, self.most_bytes = 0, 0, port, most_bytes
        self._random, self._listening = random.Random(7), socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client = self._listening.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._to))
                Thread(target=self._pass, args=(client, server, False), daemon=True).start()
                Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, is_answer: bool) -> None:
        left = self._random.randint(1, self.most_bytes)
        with suppress(OSError):  # the other direction was cut
            while content := one.recv(1 << 14):
                if is_answer and self.cuts > 0 and len(content) >= left:
                    self.cuts, self.num_cut = self.cuts - 1, self.num_cut + 1
                    other.sendall(content[:left])
                    for each in (one, other):  # closing then resets the connection, as the death of a machine does
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                left -= len(content)
                other.sendall(content)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        self._listening.close()


class Store:
    """A bucket of a real S3 server, behind a cutter. Our own requests go past the cutter."""

    def __init__(self, url: str, cutter: Cutter) -> None:
        self.url, self.cutter = url, cutter

    def asked(self, method: str, path: str, content: bytes | None = None) -> bytes:
        """The answer to a request about a bucket, such as /text, or about a file in it."""
        import requests  # here, because a machine may lack it

        answer = requests.request(method, self.url + path, headers=SIGNED, data=content, timeout=60)
        assert answer.ok, (answer.status_code, answer.text)
        return answer.content

    def put(self, name: str, content: bytes) -> str:
        self.asked("PUT", f"/{BUCKET}/{name}", content)
        return f"s3://{BUCKET}/{name}"

    def get(self, name: str) -> bytes:
        return self.asked("GET", f"/{BUCKET}/{name}")

    @contextmanager
    def keys_checked(self) -> Iterator[None]:
        """As long as this lasts, the server knows nobody's key."""
        self.asked("POST", "/moto-api/reset-auth", b"0")
        yield
        self.asked("POST", "/moto-api/reset-auth", b"inf")

    def num_unfinished(self) -> int:
        """How many files were sent in part and are kept, which costs their owner money."""
        return self.asked("GET", f"/{BUCKET}?uploads").count(b"<UploadId>")


@contextmanager
def store(monkeypatch: pytest.MonkeyPatch, most_bytes: int = 300_000) -> Iterator[Store]:
    """An empty bucket, which s3:// means as long as this lasts. Skips the test without what makes it."""
    moto, s3fs = pytest.importorskip("moto.server"), pytest.importorskip("s3fs")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    cutter = Cutter(port, most_bytes)
    # One attempt of the backend, so that broken connections come to us; a file of keys of this machine plays no role.
    for name, value in (
        KEYS | {"AWS_MAX_ATTEMPTS": "1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{cutter.port}"}
    ).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    found = Store(f"http://127.0.0.1:{port}", cutter)
    found.asked("PUT", f"/{BUCKET}")
    try:
        yield found
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        cutter.close()
        server.stop()


class _Handler(SimpleHTTPRequestHandler):
    """Python's own, which sends files from their beginning only; this one can also begin elsewhere."""

    has_ranges = False
    num_bytes: int | None = None
    answers: tuple[int, ...] = ()
    """The status of the first requests, of all connections together; 200 means the usual answer."""
    asked = count()

    def send_head(self) -> Any:
        number = next(self.asked)
        if number < len(self.answers) and self.answers[number] != 200:
            self.send_error(self.answers[number])
            return None
        return super().send_head()

    def do_GET(self) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not self.has_ranges or wanted is None:
            super().do_GET()
            return
        content = Path(self.translate_path(self.path)).read_bytes()
        begin, end = int(wanted[1]), min(int(wanted[2]) + 1, len(content))
        end = max(begin, min(end, self.num_bytes or end))
        self.send_response(206)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[begin:end])

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web(
    directory: Path,
    has_ranges: bool,
    most_bytes: int = 300_000,
    num_bytes: int | None = None,
    answers: Sequence[int] = (),
) -> Iterator[tuple[str, Cutter]]:
    """Serve a directory over HTTP, behind a cutter: the beginning of its URLs, and the cutter.

    With `num_bytes`, the server has lost the rest of each file, but tells its old size. `answers` are as in `_Handler`.
    """
    pytest.importorskip("aiohttp")
    handler = type(
        "Handler", (_Handler,), {"has_ranges": has_ranges, "num_bytes": num_bytes, "answers": answers, "asked": count()}
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(directory))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        cutter = Cutter(server.server_port, most_bytes)
        try:
            yield f"http://127.0.0.1:{cutter.port}", cutter
        finally:
            cutter.close()
            server.shutdown()
