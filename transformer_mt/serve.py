"""The stage `serve`: answers requests for translations over HTTP."""

import argparse
import asyncio
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from transformer_mt.base.cores import num_cores
from transformer_mt.base.errors import UserError
from transformer_mt.terminal import cli

_DESCRIPTION = """\
Loads models and answers requests over HTTP until SIGTERM or Ctrl-C, in two forms:
  POST /translate      the API of LibreTranslate, for its clients, with /languages, /detect and /translate_file
  POST /v1/translate   with scores, alternatives, alignments, terms and doubts; GET /v1/models
/ is a page for people, /openapi.json describes the routes, and /metrics has numbers for Prometheus. Give a model for
each language pair; the tags of a model of several directions are chosen by the languages of a request. Write settings
of decoding as beam_size=2, for all models; `python -m transformer_mt settings decoding` shows them.

After SIGTERM, the server answers what it has accepted, then ends. After SIGHUP, it loads its models and reads the API
keys again without a pause. Standard error has a line of JSON for each request, without texts and keys. The exit
status is 2 after an error message, 130 after Ctrl-C and 143 after SIGTERM."""

_MOST_COPIES = 4  # of each model, unless --workers asks for more: each takes memory of its own
_INSTALL = "Install all: `python -m pip install prometheus-client py3langid python-multipart starlette uvicorn`"


def main(argv: Sequence[str] | None = None) -> int:
    """Serve models until a signal comes."""
    arguments = _parser().parse_args(argv)
    directories = [Path(given) for given in arguments.models if "=" not in given or Path(given).is_dir()]
    overrides = [given for given in arguments.models if "=" in given and not Path(given).is_dir()]
    if not directories:
        raise UserError("no model directory is given: give at least one, such as runs/<name>/model")
    if len(directories) > 1 and arguments.ensemble:
        raise UserError("--ensemble joins the models of one server: give only one MODEL_DIR, or leave --ensemble out")
    for package in ("prometheus_client", "py3langid", "python_multipart", "starlette", "uvicorn"):
        if find_spec(package) is None:
            raise UserError(f"the package {package} is not installed, which `serve` needs. {_INSTALL}")
    from transformer_mt.serving.app import serve
    from transformer_mt.serving.limits import Limits, read_keys
    from transformer_mt.serving.model_process import Copies

    keys = read_keys(arguments.api_keys) if arguments.api_keys else frozenset()
    limits = Limits(arguments.queue, arguments.char_limit, arguments.batch_limit, arguments.timeout, keys)
    options = cli.engine_options(arguments)
    number = options.workers or min(num_cores(), _MOST_COPIES)
    models = [Copies([directory, *arguments.ensemble], options, overrides, number) for directory in directories]
    with cli.sigterm_raised(), _bound(arguments.host, arguments.port) as listener:
        asyncio.run(serve(models, limits, listener, arguments.api_keys, arguments.cors))
    return 0


def _bound(host: str, port: int) -> socket.socket:
    """A socket with this address. Raises UserError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sends at once on TCP only
    # On Windows, SO_REUSEADDR would let a second server take the same port.
    listener.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR), 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen at {host}, port {port}: {reason}. Choose other --host and --port") from None
    return listener


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(
        "serve",
        _DESCRIPTION,
        "python -m transformer_mt.serve runs/demo_en_de/model beam_size=2\n"
        "  curl http://127.0.0.1:5000/translate -d q='The child is sleeping.' -d source=en -d target=de",
    )
    about = "the directories of models, such as runs/<name>/model, and settings, such as beam_size=2"
    parser.add_argument("models", metavar="MODEL_DIR|key=value", nargs="+", help=about)
    cli.add_engine_arguments(parser)
    about = "the address to listen at; 0.0.0.0 for other machines, too (default: 127.0.0.1, for this machine only)"
    parser.add_argument("--host", default="127.0.0.1", help=about)
    parser.add_argument("--port", type=int, default=5000, help="0: any free port (default: 5000)")
    about = "answer 429 to requests with which more than N sentences would wait (default: 2000)"
    parser.add_argument("--queue", metavar="N", type=cli.positive, default=2000, help=about)
    about = "the most characters of a request or a file (default: 50000)"
    parser.add_argument("--char-limit", metavar="N", type=cli.positive, default=50_000, help=about)
    about = "the most texts of a request (default: 500)"
    parser.add_argument("--batch-limit", metavar="N", type=cli.positive, default=500, help=about)
    about = "seconds that a request may take to arrive, and then its answer (default: 60)"
    parser.add_argument("--timeout", metavar="SECONDS", type=_seconds, default=60.0, help=about)
    about = "answer only requests with an API key of this file, which has one key on each line"
    parser.add_argument("--api-keys", metavar="FILE", type=Path, help=about)
    about = "let pages of this origin, such as https://example.org, use the server; * for all. May be repeated"
    parser.add_argument("--cors", metavar="ORIGIN", action="append", default=[], help=about)
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 0 to 3600")
    return seconds


if __name__ == "__main__":
    sys.exit(cli.run(main))
