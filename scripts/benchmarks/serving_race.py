"""Measures how many sentences a second the server translates for many clients, beside other ways on the same text.

    python scripts/benchmarks/serving_race.py MODEL_DIR TEXT [--clients 64] [--seconds 20] [--rounds 3] [--beam 4]
        [--json FILE]

All take turns in each round, with the same model, text and beam size. `translate` is the time of `Translator.translate`
for all lines, without loading. The servers listen on this machine only; the program wrk, which must be installed, sends
one line of the text in each request, over 64 connections that ask again as soon as they have their answer, and then
over one connection, which gives the latency of a server that has nothing else to do. wrk takes part of the machine.

The peer is what people write themselves: a FastAPI handler that FastAPI runs in its threads, each with its own call of
a CTranslate2 translator. It needs `pip install fastapi`.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.environment import SCRIPTS, PeerError, environment_of, own_path, processor_and_load
from transformer_mt.base.cores import num_cores

# wrk runs this in each of its threads. A line that has a quote or a backslash is left out of the text before.
_SCRIPT = """
local lines = {}
for line in io.lines("%s") do lines[#lines + 1] = line end
local number, bad = 0, 0
request = function()
  number = number %% #lines + 1
  return wrk.format("POST", "/translate", {["Content-Type"] = "application/json"},
    '{"q": "' .. lines[number] .. '", "source": "%s", "target": "%s"}')
end
"""


@dataclass(frozen=True)
class Load:
    """What clients saw in one run."""

    sentences: float
    """A second."""
    p50: float
    """Milliseconds, as p99."""
    p99: float


def main() -> None:
    """Run all contenders in turns, and print medians and ratios."""
    arguments = _parser().parse_args()
    with tempfile.TemporaryDirectory() as directory:
        text = Path(directory) / "lines.txt"
        given = arguments.text.read_text("utf-8").splitlines()
        lines = [line for line in given if line.strip() and not set('"\\\t') & set(line)]
        text.write_text("\n".join(lines) + "\n", "utf-8")
        exported = Path(directory) / "ctranslate2"
        _run("-m", "transformer_mt.export", "--format", "ctranslate2", arguments.model, exported)
        ours, serve = [str(arguments.model)], ["-m", "transformer_mt.serve"]
        beam = f"beam_size={arguments.beam}"
        peer = str(Path(SCRIPTS) / "benchmarks" / "contenders" / "serve_fastapi.py")
        servers = {
            "serve": [*serve, *ours, beam],
            "serve --engine ctranslate2": [*serve, str(exported), beam, "--engine", "ctranslate2"],
            "FastAPI and CTranslate2": [peer, str(exported), str(arguments.beam)],
        }
        loaded = partial(_under_load, text=text, arguments=arguments, directory=Path(directory))
        print(f"{processor_and_load()}; {len(lines)} lines, beam {arguments.beam}, {arguments.clients} clients")
        speeds, loads = _rounds(arguments, lines, servers, loaded)
    _show(speeds, loads)
    if arguments.json:
        found = {
            "translate": speeds,
            "servers": {name: [list(map(asdict, one)) for one in of] for name, of in loads.items()},
        }
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


def _rounds(
    arguments: argparse.Namespace,
    lines: list[str],
    servers: dict[str, list[str]],
    loaded: "Callable[[list[str]], tuple[Load, Load]]",
) -> tuple[list[float], dict[str, list[tuple[Load, Load]]]]:
    """For each round, the speed of `translate`, and what many clients and one client saw of each server."""
    speeds: list[float] = []
    loads: dict[str, list[tuple[Load, Load]]] = {name: [] for name in servers}
    for _ in range(arguments.rounds):
        speeds.append(_speed_of_translate(arguments.model, lines, arguments.beam))
        for name, command in servers.items():
            loads[name].append(loaded(command))
    return speeds, loads


def _show(speeds: list[float], loads: dict[str, list[tuple[Load, Load]]]) -> None:
    print(f"translate: {median(speeds):.1f} sentences/s ({min(speeds):.1f}-{max(speeds):.1f})")
    peers = loads["FastAPI and CTranslate2"]
    for name, found in loads.items():
        many, alone = zip(*found, strict=True)
        of_translate = [one.sentences / speed for one, speed in zip(many, speeds, strict=True)]
        of_peer = [one.sentences / peer.sentences for one, (peer, _) in zip(many, peers, strict=True)]
        print(
            f"{name}: {median(one.sentences for one in many):.1f} sentences/s, "
            f"{median(of_translate):.2f} ({min(of_translate):.2f}-{max(of_translate):.2f}) of translate, "
            f"{median(of_peer):.2f} ({min(of_peer):.2f}-{max(of_peer):.2f}) of the peer; "
            f"p50 {median(one.p50 for one in many):.0f} ms, p99 {median(one.p99 for one in many):.0f} ms; alone "
            f"{median(one.p50 for one in alone):.1f} and {median(one.p99 for one in alone):.1f} ms"
        )


def _speed_of_translate(model: Path, lines: list[str], beam: int) -> float:
    """Lines a second."""
    code = (
        "import sys, time; from transformer_mt import Translator\n"
        "model, beam, text = sys.argv[1:]; lines = open(text, encoding='utf-8').read().splitlines()\n"
        "with Translator.load(model) as translator:\n"
        "    translator.translate(lines[:64], beam_size=int(beam)); begun = time.perf_counter()\n"
        "    translator.translate(lines, beam_size=int(beam)); print(len(lines) / (time.perf_counter() - begun))\n"
    )
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
        file.write("\n".join(lines))
        file.flush()
        return float(_run("-c", code, model, beam, file.name))


def _under_load(command: list[str], *, text: Path, arguments: argparse.Namespace, directory: Path) -> tuple[Load, Load]:
    """What many clients, and then one, see of a server that this command starts with a --port."""
    with _served(command, directory) as port:
        languages = json.loads(_get(port, "/languages"))
        source = next(one for one in languages if set(one["targets"]) - {one["code"]})
        target = next(code for code in source["targets"] if code != source["code"])
        script = directory / "requests.lua"
        script.write_text(_SCRIPT % (text, source["code"], target), "utf-8")
        _load(port, script, 8, 3)  # so that all is loaded
        return _load(port, script, arguments.clients, arguments.seconds), _load(port, script, 1, arguments.seconds / 2)


@contextmanager
def _served(command: list[str], directory: Path) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = directory / "server.log"
    with log.open("w", encoding="utf-8") as file:
        environment = environment_of(own_path(), num_cores())
        process = subprocess.Popen(
            [sys.executable, *command, "--port", str(port)], stdout=file, stderr=file, env=environment
        )
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise PeerError(f"{command[0]} ended:\n{log.read_text()[-2000:]}")
            try:
                _get(port, "/health")
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _get(port: int, path: str) -> str:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return str(answer.read().decode())


def _load(port: int, script: Path, clients: int, seconds: float) -> Load:
    address = f"http://127.0.0.1:{port}/translate"
    options = ["-t1", f"-c{clients}", f"-d{round(seconds)}s", "--timeout", "60s", "--latency", "-s", str(script)]
    try:
        said = subprocess.run(["wrk", *options, address], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise PeerError("the program wrk is not installed: apt-get install wrk") from None
    if "Non-2xx" in said or "Socket errors" in said:
        raise PeerError(f"a server failed under load:\n{said}")
    speed = re.search(r"Requests/sec:\s+([\d.]+)", said)
    parts = {part: _milliseconds(value) for part, value in re.findall(r"^\s+(50|99)%\s+(\S+) *$", said, re.MULTILINE)}
    if speed is None or "50" not in parts:
        raise PeerError(f"wrk says:\n{said}")
    return Load(float(speed[1]), parts["50"], parts["99"])


def _milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()  # type: ignore[union-attr]
    return float(number) * {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}[unit]


def _run(*command: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | {"PYTHONPATH": own_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PeerError(done.stderr)
    return done.stdout


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL_DIR", type=Path)
    parser.add_argument("text", metavar="TEXT", type=Path, help="a file of sentences, one on each line")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run (default: 20)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all numbers to this file")
    return parser


if __name__ == "__main__":
    try:
        main()
    except PeerError as error:
        sys.exit(f"error: {error}")
