"""What a server refuses, and what clients that break the rules do to others: nothing."""

import asyncio
import json
import random
import signal
import socket
import threading
import time

import pytest
from helpers.optional import skip_without_package_of
from helpers.processes import wait_until
from helpers.tiny import demo_pairs

requests = pytest.importorskip("requests")

KEY, OTHER_KEY = "0123456789abcdef", "fedcba9876543210"
SENTENCES = [source for source, _ in demo_pairs(12)]
EN_DE = {"source": "en", "target": "de"}
LONG = "\n".join(SENTENCES * 25)
"""Text for which the tiny model needs more than a second, for any machine that is not a hundred times faster."""


@pytest.fixture(scope="module")
def strict(model_dir, tmp_path_factory):
    """A server with keys, little time and a short queue."""
    skip_without_package_of("serve")
    from helpers.served import serving

    directory = tmp_path_factory.mktemp("strict")
    keys = directory / "keys.txt"
    keys.write_text(f"# of the office\n{KEY}\n\n  {OTHER_KEY}  # not a comment\n{OTHER_KEY}\n")
    limits = ["--api-keys", keys, "--timeout", 1, "--queue", 100, "--cors", "https://example.org"]
    with serving(directory, model_dir, "beam_size=4", *limits, "--workers", 1) as found:
        yield found


@pytest.mark.thorough
def test_only_known_keys(strict):
    for fields, status in (({}, 400), ({"api_key": ""}, 400), ({"api_key": KEY[:-1]}, 403), ({"api_key": [KEY]}, 400)):
        for path in ("/translate", "/detect", "/v1/translate"):
            answer = strict.post(path, json={"q": "x", "text": "x", **EN_DE} | fields)
            assert answer.status_code == status, (path, fields)
    assert strict.post("/translate", json={"q": "x", **EN_DE, "api_key": "é" * 16}).json() == {
        "error": "Invalid API key"
    }
    for key in (KEY, OTHER_KEY):
        assert strict.post("/detect", data={"q": "x", "api_key": key}).ok
        assert strict.post("/v1/translate", json={"text": "x"}, headers={"Authorization": f"Bearer {key}"}).ok
    assert strict.get("/languages").ok and strict.get("/frontend/settings").json()["keyRequired"]


@pytest.mark.slow
def test_sighup_reads_the_keys_again(strict):
    path = strict.running.out.with_name("keys.txt")
    before, new = path.read_text(), "f" * 16

    def status(key: str) -> int:
        return strict.post("/detect", data={"q": "x", "api_key": key}).status_code

    assert (status(OTHER_KEY), status(new)) == (200, 403)
    path.write_text(f"{KEY}\n{new}\n")
    strict.signal(signal.SIGHUP)
    wait_until(lambda: status(new) == 200, strict.running)
    assert status(OTHER_KEY) == 403
    path.write_text("short\n")
    strict.signal(signal.SIGHUP)
    assert "fewer than 16 characters" in strict.logged(level="error")["message"]
    assert (status(KEY), status(new)) == (200, 200)
    path.write_text(before)
    strict.signal(signal.SIGHUP)
    wait_until(lambda: status(OTHER_KEY) == 200, strict.running)


@pytest.mark.thorough
def test_what_takes_too_long_and_what_would_wait_too_long(strict):
    def ask(text: str):
        return strict.post("/v1/translate", json={"text": text, "beam_size": 32, "api_key": KEY})

    late = []
    first = threading.Thread(target=lambda: late.append(ask(LONG)))
    first.start()
    waiting = "transformer_mt_waiting_sentences 300.0"
    until = time.monotonic() + 60
    while waiting not in strict.get("/metrics").text and time.monotonic() < until:
        time.sleep(0.02)
    refused = ask("A dog.")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    first.join()
    assert late[0].status_code == 504, late[0].text
    while waiting in strict.get("/metrics").text and time.monotonic() < until:
        time.sleep(0.1)
    assert ask("A dog.").status_code in (200, 504), "the queue is empty again"


@pytest.mark.thorough
def test_a_body_that_is_too_large_or_does_not_arrive(strict):
    form = {"headers": {"Content-Type": "application/x-www-form-urlencoded"}}
    with_length = strict.post("/translate", data=b"x" * 700_000, **form)
    assert with_length.status_code == 413
    in_pieces = strict.post("/translate", data=(b"x" * 10_000 for _ in range(70)), **form)
    assert in_pieces.status_code == 413
    assert "bytes" in in_pieces.json()["error"]
    host, port = strict.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as slow:
        slow.sendall(
            b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\nContent-Type: application/json\r\n\r\n{"
        )
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.thorough
def test_pages_of_one_other_origin_may_ask(strict):
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    for origin, allowed in (("https://example.org", True), ("https://evil.example", False)):
        answer = strict.get("/health", headers={"Origin": origin})
        assert (answer.headers.get("access-control-allow-origin") == origin) == allowed
        before = requests.options(strict.url + "/translate", headers={"Origin": origin, **asked}, timeout=60)
        assert (before.status_code == 200) == allowed
    refused = strict.post("/translate", json={}, headers={"Origin": "https://example.org"})
    assert refused.status_code == 400 and "access-control-allow-origin" in refused.headers


def request_bytes(text: str) -> bytes:
    body = json.dumps({"q": text, **EN_DE}).encode()
    return b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


@pytest.mark.slow
def test_clients_that_leave_or_send_nonsense_harm_no_other(server, translator):
    """Half of the clients send part of a request, or other bytes, and leave at any time."""
    drawn = random.Random(7)
    expected = translator.translate(SENTENCES)
    host, port = server.url.removeprefix("http://").split(":")

    async def rude() -> None:
        _, writer = await asyncio.open_connection(host, int(port))
        content = bytearray(request_bytes(SENTENCES[0]))
        if drawn.random() < 0.5:
            content[drawn.randrange(len(content))] = drawn.randrange(256)
        writer.write(content[: drawn.randrange(1, len(content) + 1)])
        await asyncio.sleep(drawn.random() / 5)
        if drawn.random() < 0.5:
            writer.transport.abort()
        writer.close()

    async def polite(number: int) -> str:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request_bytes(SENTENCES[number]).replace(b"Host: x", b"Host: x\r\nConnection: close"))
        answer = await reader.read()
        writer.close()
        return json.loads(answer.partition(b"\r\n\r\n")[2])["translatedText"]

    async def all_of_them() -> list[str]:
        rude_ones = [asyncio.create_task(rude()) for _ in range(40)]
        found = await asyncio.gather(*map(polite, range(len(SENTENCES))))
        await asyncio.gather(*rude_ones)
        return found

    assert asyncio.run(all_of_them()) == expected
    assert server.get("/health").ok
    assert not [line for line in server.log() if "failure" in line]
    assert all(line.startswith("{") for line in server.running.err.read_text().splitlines())


@pytest.mark.slow
def test_models_are_replaced_under_requests(server, translator):
    expected, stop, found = translator.translate(SENTENCES[:1])[0], threading.Event(), []

    def ask() -> None:
        while not stop.is_set():
            found.append(server.translated(SENTENCES[0])["translatedText"])

    asking = threading.Thread(target=ask)
    asking.start()
    server.signal(signal.SIGHUP)
    server.logged(level="info")
    stop.set()
    asking.join()
    assert len(found) > 1 and set(found) == {expected}
