"""Sends a server 10,000 requests, of which many are broken, and checks that no answer is lost or mixed up.

    python scripts/benchmarks/serving_stress.py MODEL_DIR TEXT [--requests 10000] [--clients 64] [--seed 1]

Before, `Translator` translates the first lines of the text alone. The server then gets these lines from many clients at
once. Most clients behave; others leave before they have sent all or before they have read the answer, send JSON that is
broken, a body that is too large or of a language that the server does not have, or read their answer one byte at a
time. 100 further connections send half a request and then nothing. Each answer must have the status that its request
deserves, and, for a good request, exactly the translation of its own line. The memory of all processes of the server is
read after each tenth of the requests.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.environment import PeerError, environment_of, own_path, processor_and_load
from transformer_mt import Translator
from transformer_mt.base.cores import num_cores

HUNG = 100
LINES = 300
# How often clients are of each kind, out of 100.
KINDS = {
    "good": 70,
    "leaves while sending": 5,
    "leaves while waiting": 10,
    "broken": 5,
    "oversized": 3,
    "unknown": 3,
    "slow": 4,
}
EXPECTED = {"good": 200, "slow": 200, "broken": 400, "oversized": 413, "unknown": 400}


class Stress:
    """The clients, and what they have seen."""

    def __init__(self, port: int, lines: Sequence[str], translations: Sequence[str], pair: tuple[str, str]) -> None:
        self.port, self.pairs, self.pair = port, list(zip(lines, translations, strict=True)), pair
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def one(self, rng: random.Random) -> None:
        """Send one request of a random kind, and check its answer."""
        [kind] = rng.choices(list(KINDS), list(KINDS.values()))
        line, translation = rng.choice(self.pairs)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            request = self._request(kind, line)
            if kind == "leaves while sending":
                request = request[: rng.randrange(1, len(request))]
            writer.write(request)
            if kind != "oversized":  # the server may answer and close before it has read all
                await writer.drain()
            if kind == "leaves while waiting":
                await asyncio.sleep(rng.random() * 0.2)
            if not kind.startswith("leaves"):
                self._check(kind, line, translation, await self._answer(reader, slow=kind == "slow"))
            self.seen[kind] += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            self.wrong.append(f"{kind}: {error!r}")
        finally:
            writer.transport.abort()

    def _request(self, kind: str, line: str) -> bytes:
        source, target = self.pair
        body = json.dumps({"q": line, "source": source, "target": "xx" if kind == "unknown" else target}).encode()
        if kind == "broken":
            body = body[:-3]
        elif kind == "oversized":
            body += b" " * 20_000_000
        lines = ["POST /translate HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close"]
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
        return head.encode() + (body[:1000] if kind == "oversized" else body)

    async def _answer(self, reader: asyncio.StreamReader, *, slow: bool) -> tuple[int, dict[str, str]]:
        if not slow:
            answer = await reader.read(-1)
        else:
            answer = b""
            while byte := await reader.read(1):
                answer += byte
                await asyncio.sleep(0.001)
        head, _, body = answer.partition(b"\r\n\r\n")
        found = re.match(rb"HTTP/1.1 (\d+)", head)
        return (int(found[1]), json.loads(body)) if found else (0, {})

    def _check(self, kind: str, line: str, translation: str, answer: tuple[int, dict[str, str]]) -> None:
        status, content = answer
        if status != EXPECTED[kind]:
            self.wrong.append(f"{kind}: status {status}, {content}")
        elif status == 200 and content.get("translatedText") != translation:
            self.wrong.append(f"{kind}: {line!r} became {content!r}, not {translation!r}")
        elif status != 200 and set(content) != {"error"}:
            self.wrong.append(f"{kind}: {content!r}")


async def _run(arguments: argparse.Namespace) -> int:
    lines = [line for line in arguments.text.read_text("utf-8").splitlines() if line.strip()][:LINES]
    with Translator.load(arguments.model) as translator:
        translations = [translator.translate([line])[0] for line in lines]
        pair = translator.cutter.languages
    command = [
        sys.executable,
        "-m",
        "transformer_mt.serve",
        str(arguments.model),
        "--port",
        "0",
        "--char-limit",
        "100000",
    ]
    environment = environment_of(own_path(), num_cores())
    with Path(os.devnull).open("w") as nothing:
        server = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=nothing, env=environment
        )
    assert server.stdout is not None
    found = re.search(rb":(\d+): ", await server.stdout.readline())
    if found is None:
        raise PeerError("the server did not start: run it by itself to see why")
    stress, begun = Stress(int(found[1]), lines, translations, pair), time.perf_counter()
    hung = [await asyncio.open_connection("127.0.0.1", stress.port) for _ in range(HUNG)]
    for number, (_, writer) in enumerate(hung):
        writer.write([b"", b"POST /tra", b"POST /translate HTTP/1.1\r\nContent-Length: 50\r\n\r\n{"][number % 3])
    tenth, memory = arguments.requests // 10, list[float]()
    for _ in range(10):
        await _send(stress, tenth, arguments)
        memory.append(_memory(server.pid))
    server.send_signal(signal.SIGTERM)
    status = await server.wait()
    seconds = time.perf_counter() - begun
    print(f"{10 * tenth} requests in {seconds:.0f} s, {HUNG} hung connections: {dict(stress.seen)}")
    print(f"memory in MB after each tenth: {', '.join(f'{each:.0f}' for each in memory)}; exit status {status}")
    print(f"{len(stress.wrong)} wrong")
    print(*stress.wrong[:10], sep="\n")
    return 1 if stress.wrong else 0


async def _send(stress: Stress, number: int, arguments: argparse.Namespace) -> None:
    """Send so many requests, from many clients at once."""
    rng, left = random.Random(arguments.seed + sum(stress.seen.values())), number

    async def client() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await stress.one(rng)

    await asyncio.gather(*(client() for _ in range(arguments.clients)))


def _memory(pid: int) -> float:
    """The resident memory of a process and its children, in MB; shared memory counts once (PSS)."""
    pids, total = [pid], 0
    while pids:
        current = pids.pop()
        for children in Path(f"/proc/{current}/task").glob("*/children"):
            pids += map(int, children.read_text().split())
        rollup = Path(f"/proc/{current}/smaps_rollup").read_text()
        found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
        total += int(found[1]) if found else 0
    return total / 1000


def main() -> int:
    """Run the clients, and print what they saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL_DIR", type=Path)
    parser.add_argument("text", metavar="TEXT", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(processor_and_load())
    return asyncio.run(_run(arguments))


if __name__ == "__main__":
    sys.exit(main())
