"""What all commands share: help with an example, the form in which they are typed, and how they end."""

import argparse
import io
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from transformer_mt.errors import UserError

LONGEST_BLOCK = 2**24  # bytes that are written to standard output together


class Terminated(KeyboardInterrupt):
    """SIGTERM, where it is raised; it ends a command as Ctrl-C does."""


def parser(stage: str, description: str, example: str) -> argparse.ArgumentParser:
    """An argument parser whose help says what the stage reads and writes, and shows an example."""
    return argparse.ArgumentParser(
        prog=as_typed(f"python -m transformer_mt.{stage}"),
        description=as_typed(description),
        epilog=as_typed(f"example:\n  {example}"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def run(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """The exit status of `main`: 2 and a message for a mistake of the user's, 130 after Ctrl-C, 143 after SIGTERM.

    Without `argv` the command is this process's own, and after a signal the process ends here: Python's own end would
    wait for threads of libraries, which may have work for minutes.
    """
    if logging.lastResort is not None:  # it writes the warnings of rooms that know no command line
        logging.lastResort.setFormatter(_AsTyped())
    try:
        return main(argv)
    except UserError as error:
        print(f"error: {as_typed(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        status = 128 + (signal.SIGTERM if isinstance(stopped, Terminated) else signal.SIGINT)
        print("terminated" if isinstance(stopped, Terminated) else "interrupted", file=sys.stderr)
        if argv is None:
            _leave(status)  # here, where the traceback still holds what has threads, so that nobody joins them
        return status
    except BrokenPipeError:
        # The reader has gone (as in `| head`). Nothing is left to flush to it when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno is None:  # not the system's
            raise
        print(f"error: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 2


class _AsTyped(logging.Formatter):
    """Commands in warnings have the form in which this one was typed."""

    def format(self, record: logging.LogRecord) -> str:
        return as_typed(super().format(record))


@contextmanager
def output() -> Iterator[io.BufferedWriter]:
    """Standard output, for bytes: its text layer may write other line ends and another encoding than UTF-8.

    What is written at once, up to LONGEST_BLOCK, is written wholly or not at all, also when a signal is raised.
    """
    if sys.stdout is None:
        raise UserError("standard output is closed: open it, or write to a file")
    sys.stdout.flush()
    file = io.BufferedWriter(getattr(sys.stdout.buffer, "raw", sys.stdout.buffer), LONGEST_BLOCK)
    try:
        yield file
    finally:
        file.detach()  # writes what a signal has left, and leaves standard output open


@contextmanager
def sigterm_raised() -> Iterator[None]:
    """Raise Terminated at SIGTERM, so that files are put in order before the command ends; a second one ends it."""

    def terminate(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(status: int) -> NoReturn:
    """End the process at once, after what was written has reached its readers; a second Ctrl-C does not wait."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):  # there is none, it is closed, or its reader has gone
            stream.flush()
    os._exit(status)


def as_typed(text: str) -> str:
    """A text whose commands, written `python -m transformer_mt.<stage>`, have the form in which this one was typed."""
    prefix = _prefix()
    if prefix is None:
        return text
    return re.sub(r"(?<![\w/])python -m transformer_mt[. ](?=[a-z<])", f"{prefix} ", text)


def _prefix() -> str | None:
    """What stands before the stage in the command that was typed; None for `python -m transformer_mt.<stage>`."""
    typed = Path(sys.argv[0])
    if typed.name == "transformer-mt":
        return "transformer-mt"
    if typed.parts[-2:] == ("transformer_mt", "__main__.py"):
        return "python -m transformer_mt"
    return None


def command(stage: str, *arguments: str) -> list[str]:
    """The command of a stage, in the form in which this one was typed, as it can be run from here."""
    match _prefix():
        case "transformer-mt":
            return [_console_script(), stage, *arguments]
        case None:
            return [python(), "-m", f"transformer_mt.{stage}", *arguments]
        case _:
            return [python(), "-m", "transformer_mt", stage, *arguments]


def _console_script() -> str:
    """Its name where the shell finds it by that, else its path."""
    found = shutil.which("transformer-mt")
    if found and Path(found).resolve() == Path(sys.argv[0]).resolve():
        return "transformer-mt"
    return shown(Path(sys.argv[0]))


def python() -> str:
    """The running Python as one would type it here."""
    return shown(Path(sys.executable))


def shown(path: Path) -> str:
    """Relative where that is shorter to type: below the working directory."""
    path = Path(os.path.abspath(path))
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
