"""Code that commands share: arguments, their help, the handling of signals, and the exit status."""

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, get_args

from transformer_mt import end_at_once
from transformer_mt.base import remote
from transformer_mt.base.errors import ConfigError, UserError
from transformer_mt.base.system import command_line
from transformer_mt.base.wording import cut, hidden
from transformer_mt.marian import as_model_dir

if TYPE_CHECKING:
    from transformer_mt.decoding.loading import EngineOptions

LONGEST_BLOCK = 2**24  # bytes that go to standard output in one write


class Terminated(KeyboardInterrupt):
    """SIGTERM as an exception. It ends a command in the same way as Ctrl-C."""


def parser(stage: str, description: str, example: str) -> argparse.ArgumentParser:
    """Make the argument parser of a stage. Its help shows the description and an example."""
    return _Parser(
        prog=f"python -m transformer_mt.{stage}",
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    about = "the directory of a model, such as runs/<name>/model, or of a MarianMT model such as those of OPUS-MT"
    parser.add_argument("model", metavar="MODEL_DIR", type=Path, action=ModelDir, help=about)


class BeforeSettings(argparse.Action):
    """Stores the file or directory that a command needs. Raises ConfigError for a setting in its place."""

    def __call__(self, parser: object, namespace: argparse.Namespace, value: object, option: object = None) -> None:
        if "=" in str(value) and not os.path.lexists(str(value)):
            shown = cut(hidden(str(value)))
            raise ConfigError(f"{shown}: is a setting, but {self.metavar} comes first: write {self.metavar} {shown}")
        setattr(namespace, self.dest, value)


class ModelDir(BeforeSettings):
    """Stores a model directory; one of MarianMT is converted first. `type` cannot do it: it would hide the error."""

    def __call__(self, parser: object, namespace: argparse.Namespace, value: object, option: object = None) -> None:
        assert isinstance(value, Path)
        super().__call__(parser, namespace, as_model_dir(value))


def add_settings(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Add any number of settings key=value. `meaning` is their help text."""
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help=meaning)


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --ensemble, and an option for each of EngineOptions."""
    from transformer_mt.decoding.loading import Dtype, EngineName, Quantization  # here: most commands need no engine

    about = "another model with the same vocabulary, to use the mean of the models' probabilities. May be repeated"
    parser.add_argument("--ensemble", metavar="MODEL_DIR", type=Path, action="append", default=[], help=about)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    about = "format of matrix products; auto: the fastest of a GPU, fp32 on a CPU (default: fp32)"
    parser.add_argument("--dtype", choices=get_args(Dtype), default="fp32", help=about)
    about = "int8: multiply matrices of 8-bit integers, on a CPU (default: none)"
    parser.add_argument("--quantize", choices=get_args(Quantization), default="none", help=about)
    about = "number of processes on a CPU; 0, the default, lets the engine choose"
    parser.add_argument("--workers", metavar="N", type=int, default=0, help=about)
    about = "torch (the default) runs a model directory; ctranslate2 runs a directory that `export` wrote"
    parser.add_argument("--engine", choices=get_args(EngineName), default="torch", help=about)
    about = "run the slow code that is easy to read instead of its faster versions, to compare the two"
    parser.add_argument("--plain", action="store_true", help=about)


def engine_options(arguments: argparse.Namespace) -> "EngineOptions":
    from transformer_mt.decoding.loading import EngineOptions  # here, because most commands need no engine

    return EngineOptions(**{each.name: getattr(arguments, each.name) for each in fields(EngineOptions)}).resolved()


def model_dirs(arguments: argparse.Namespace) -> list[Path]:
    return [arguments.model, *arguments.ensemble]


class _Parser(argparse.ArgumentParser):
    """A parser that explains key=value to users who write a setting as an option, such as --beam-size 5."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments") and any(a.metavar == "key=value" for a in self._actions):
            message += "\nWrite settings as key=value, without dashes: see the example in --help"
        super().error(message)


def run(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Run `main` and return its exit status.

    The status is 2, with a message, after a mistake of the user; 130 after Ctrl-C; 143 after SIGTERM; 141 if the reader
    of a pipe has ended. Without `argv`, `main` uses the arguments of this process, and a signal ends the process in
    this function: the usual exit of Python would wait for threads of libraries, which may be busy for minutes."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # Python opens standard error in this way
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with raised(signal.SIGINT, KeyboardInterrupt) if argv is None else nullcontext():
            status = main(argv)
            sys.stdout.flush()  # inside `try`, because it raises BrokenPipeError if the reader of the pipe has ended
        return status
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        status = 128 + (signal.SIGTERM if isinstance(stopped, Terminated) else signal.SIGINT)
        print("terminated" if isinstance(stopped, Terminated) else "interrupted", file=sys.stderr)
        if argv is None:
            # Now, while the traceback keeps objects with threads alive: deleting them would wait for the threads.
            _leave(status)
        return status
    except BrokenPipeError:
        # The reader has ended, as in `| head`. Python flushes standard output when it exits: send that to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # 128 + SIGPIPE, which Windows does not have
    except OSError as error:
        if error.errno is None:  # the error is not from the operating system
            raise
        print(f"error: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 2


def positive(text: str) -> int:
    """Convert an argument to a number. Raises ArgumentTypeError unless it is a whole number of at least 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def place(text: str) -> remote.Place:
    """Convert an argument to a file, which may be a URL. Raises ArgumentTypeError if it seems to contain a secret."""
    try:
        return remote.place(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_settings(arguments: Sequence[str], example: str, advice: str) -> None:
    """Raises ConfigError for an argument without =, such as a file; `advice` says how to give it, {} is its name."""
    for given in arguments:
        if "=" not in given:
            what_to_do = f"write key=value, as in {example}. {advice.format(cut(given))}"
            raise ConfigError(f"{cut(given)}: is not a setting; {what_to_do}")


@contextmanager
def output() -> Iterator[io.BufferedWriter]:
    """Open standard output for bytes, because for text it may convert line ends or use another encoding than UTF-8.

    Each write of up to LONGEST_BLOCK bytes happens completely or not at all, even if a signal interrupts it. Raises
    UserError if standard output is closed.
    """
    if sys.stdout is None:
        raise UserError("standard output is closed: start the command with an open output, or write to a file")
    sys.stdout.flush()
    file = io.BufferedWriter(getattr(sys.stdout.buffer, "raw", sys.stdout.buffer), LONGEST_BLOCK)
    try:
        yield file
    finally:
        file.detach()  # writes the rest of the buffer, also after a signal, and keeps standard output open


def sigterm_raised() -> AbstractContextManager[None]:
    """Turn SIGTERM into Terminated, so that the command can clean up its files. A second SIGTERM ends it at once."""
    return raised(signal.SIGTERM, Terminated)


@contextmanager
def raised(signum: int, error: type[KeyboardInterrupt]) -> Iterator[None]:
    """Turn a signal into an error, unless the process ignores the signal.

    During an import, the signal ends the process at once, because libraries may convert the error into another one.
    """

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if _is_importing(frame):
            end_at_once(signum, frame)
        if signum == signal.SIGTERM:
            signal.signal(signum, signal.SIG_DFL)
        raise error

    before = signal.getsignal(signum)
    if before is not signal.SIG_IGN:
        signal.signal(signum, on_signal)
    try:
        yield
    finally:
        signal.signal(signum, before)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether an import is running in this frame or in one that called it."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def _leave(status: int) -> NoReturn:
    """Flush standard output and standard error, then end the process. A second Ctrl-C ends it without the flush."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):  # the stream is None, closed, or without a reader
            stream.flush()
    os._exit(status)


def command(stage: str, *arguments: str) -> str:
    """Return the command line of a stage as a user can type it in the working directory."""
    return command_line([shown(Path(sys.executable)), "-m", f"transformer_mt.{stage}", *arguments])


def shown(path: Path) -> str:
    """Return a path as text: relative if it is below the working directory, else absolute."""
    path = Path(os.path.abspath(path))
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
