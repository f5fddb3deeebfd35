"""What all commands share: their help, what a signal does, and the exit status."""

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from transformer_mt import end_at_once
from transformer_mt.base.errors import ConfigError, UserError
from transformer_mt.base.wording import cut

LONGEST_BLOCK = 2**24  # bytes that are written to standard output at once


class Terminated(KeyboardInterrupt):
    """SIGTERM as an exception. It ends a command as Ctrl-C does."""


def parser(stage: str, description: str, example: str) -> argparse.ArgumentParser:
    """Make the argument parser of a stage. Its help says what the stage reads and writes, and shows an example."""
    return _Parser(
        prog=f"python -m transformer_mt.{stage}",
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


class _Parser(argparse.ArgumentParser):
    """Says how settings are given, to those who know programs that have an option for each."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments") and any(a.metavar == "key=value" for a in self._actions):
            message += "\nSettings are written key=value, without dashes: see the example of --help"
        super().error(message)


def run(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Run `main` and return its exit status.

    It is 2, with a message, after a mistake of the user; 130 after Ctrl-C; 143 after SIGTERM; 141 if the reader of a
    pipe has gone. Without `argv` the arguments are those of this process. Then a signal ends the process here, because
    the usual end of Python waits for threads of libraries, which may be busy for minutes.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # as standard error does, which Python opens so
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with raised(signal.SIGINT, KeyboardInterrupt) if argv is None else nullcontext():
            status = main(argv)
            sys.stdout.flush()  # here, where a reader that has gone is no error
        return status
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        status = 128 + (signal.SIGTERM if isinstance(stopped, Terminated) else signal.SIGINT)
        print("terminated" if isinstance(stopped, Terminated) else "interrupted", file=sys.stderr)
        if argv is None:
            _leave(status)  # while the traceback still holds objects with threads: deleting them would wait for those
        return status
    except BrokenPipeError:
        # The reader has gone, as in `| head`. Python flushes standard output when it ends: let it go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno is None:  # it does not come from the operating system
            raise
        print(f"error: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 2


def add_overrides(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Add the arguments key=value, `overrides`. What they change is said by their help, `meaning`."""
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help=meaning)


def positive(text: str) -> int:
    """Return the number that an argument is. Raises ArgumentTypeError unless it is a whole number of at least 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def check_settings(arguments: Sequence[str], example: str, advice: str) -> None:
    """Raises ConfigError for what is given in the place of settings and is none, such as a file without its option.

    `advice` says how a file is given, with {} for its name.
    """
    for given in arguments:
        if "=" not in given:
            what_to_do = f"write key=value, as in {example}. {advice.format(cut(given))}"
            raise ConfigError(f"{cut(given)}: is not a setting; {what_to_do}")


@contextmanager
def output() -> Iterator[io.BufferedWriter]:
    """Open standard output for bytes, because as text it may have other line ends and another encoding than UTF-8.

    Each write of up to LONGEST_BLOCK bytes happens completely or not at all, even if a signal interrupts it. Raises
    UserError if standard output is closed.
    """
    if sys.stdout is None:
        raise UserError("standard output is closed: open it, or write to a file")
    sys.stdout.flush()
    file = io.BufferedWriter(getattr(sys.stdout.buffer, "raw", sys.stdout.buffer), LONGEST_BLOCK)
    try:
        yield file
    finally:
        file.detach()  # writes what a signal has left in the buffer, and keeps standard output open


def sigterm_raised() -> AbstractContextManager[None]:
    """Turn SIGTERM into Terminated, so that the command can tidy up its files. A second SIGTERM ends it at once."""
    return raised(signal.SIGTERM, Terminated)


@contextmanager
def raised(signum: int, error: type[KeyboardInterrupt]) -> Iterator[None]:
    """Turn a signal into an error, unless it is ignored.

    While a module is imported, the signal ends the process at once: libraries may turn the error into another one.
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
    """Whether this function was called while a module is imported."""
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


def command(stage: str, *arguments: str) -> list[str]:
    """Return the command of a stage as a list of words, as one would type it here."""
    return [shown(Path(sys.executable)), "-m", f"transformer_mt.{stage}", *arguments]


def shown(path: Path) -> str:
    """Return a path as text: relative if it is below the working directory, else absolute."""
    path = Path(os.path.abspath(path))
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
