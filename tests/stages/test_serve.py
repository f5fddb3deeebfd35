"""The stage serve: what it says at its start, its signals, and mistakes of its user."""

import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers.messages import says
from helpers.optional import skip_without_package_of
from helpers.processes import ended, said, wait_until
from helpers.tiny import demo_pairs, status_and_error

from transformer_mt import serve

skip_without_package_of("serve")

from helpers.served import serving  # noqa: E402

PROC = Path("/proc/self")
SENTENCES = [source for source, _ in demo_pairs(12)]


def test_mistakes_end_the_command(model_dir, tmp_path, capsys):
    def fails(*arguments) -> str:
        status, error = status_and_error(serve.main, *arguments, "--device", "cpu", capsys=capsys)
        assert status == 2, error
        return error

    assert says(fails("beam_size=2"), "no-model-to-serve")
    assert says(fails(model_dir, tmp_path, "--ensemble", model_dir), "ensemble-of-several-served")
    keys = tmp_path / "keys"
    assert str(keys) in fails(model_dir, "--api-keys", keys)
    for content, code in ((b"# no key\n", "no-api-key"), (b"\xff", "api-keys-no-text"), (b"abc\n", "api-key-short")):
        keys.write_bytes(content)
        assert says(fails(model_dir, "--api-keys", keys), code, str(keys))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert says(fails(model_dir, "--port", port), "cannot-listen", str(port))
    assert says(fails(model_dir, "--port", 70000), "cannot-listen", "70000")
    assert says(fails(tmp_path / "nothing", "--port", 0), "model-directory-missing", "nothing")


@pytest.mark.slow
def test_two_models_of_one_pair_end_the_command(model_dir, capsys):
    status, error = status_and_error(serve.main, model_dir, model_dir, "--port", 0, "--device", "cpu", capsys=capsys)
    assert status == 2 and says(error, "pair-served-twice", "en", "de")


@pytest.mark.parametrize(
    "arguments", [["--timeout", "0"], ["--timeout", "x"], ["--queue", "0"], ["--char-limit", "-1"]]
)
def test_impossible_limits(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        serve.main(["model", *arguments])
    assert arguments[1] in capsys.readouterr().err


def test_without_the_packages_of_the_extra(model_dir, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "py3langid", None)
    status, error = status_and_error(serve.main, model_dir, capsys=capsys)
    assert status == 2 and says(error, "serve-package-missing", "py3langid")


@pytest.mark.thorough
def test_sigterm_answers_what_was_accepted(model_dir, translator, tmp_path):
    """Also with an override, which the requests do not repeat, and after SIGHUP while the model was being loaded."""
    expected, found = translator.translate(SENTENCES * 2, beam_size=1), []

    def hang_up(running) -> None:
        children = PROC.parent / f"{running.process.pid}/task/{running.process.pid}/children"
        wait_until(children.read_text, running)  # now it loads the model
        running.process.send_signal(signal.SIGHUP)

    with serving(
        tmp_path, model_dir, "beam_size=1", "--workers", 1, while_loading=hang_up if PROC.is_dir() else None
    ) as server:
        if PROC.is_dir():
            assert "loaded again" in server.logged(level="info")["message"]
        assert server.running.out.read_text() == f"serving {server.url}: en-de\n"

        def ask() -> None:
            found.append(server.translated(SENTENCES * 2)["translatedText"])

        asking = [threading.Thread(target=ask) for _ in range(3)]
        for each in asking:
            each.start()
        while server.get("/metrics").text.count("transformer_mt_waiting_sentences 72.0") == 0 and not found:
            time.sleep(0.02)
        server.signal(signal.SIGTERM)
        for each in asking:
            each.join()
        assert ended(server.running) == [128 + signal.SIGTERM]
        assert server.running.err.read_text().endswith("terminated\n"), said(server.running)
    assert found == [expected] * 3
