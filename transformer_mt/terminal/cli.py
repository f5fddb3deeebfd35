"""What all commands share: their help, the form in which commands are shown to the user, and the exit status."""

import argparse
import io
import logging
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from transformer_mt.errors import ConfigError, UserError
from transformer_mt.wording import cut

_PUT_OFF = 0.05  # seconds between two looks whether a module is still being imported
LONGEST_BLOCK = 2**24  # bytes that are written to standard output at once


class Terminated(KeyboardInterrupt):
    """SIGTERM as an exception. It ends a command as Ctrl-C does."""


def parser(stage: str, description: str, example: str) -> argparse.ArgumentParser:
    """Make the argument parser of a stage. Its help says what the stage reads and writes, and shows an example."""
    return _Parser(
        prog=as_typed(f"python -m transformer_mt.{stage}"),
        description=as_typed(description),
        epilog=as_typed(f"example:\n  {example}"),
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
    if logging.lastResort is not None:  # it writes the warnings of modules that know nothing of the command line
        logging.lastResort.setFormatter(_AsTyped())
    if isinstance(sys.stdout, io.TextIOWrapper):  # as standard error does, which Python opens so
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with raised(signal.SIGINT, KeyboardInterrupt) if argv is None else nullcontext():
            status = main(argv)
            sys.stdout.flush()  # here, where a reader that has gone is no error
        return status
    except UserError as error:
        print(f"error: {as_typed(str(error))}", file=sys.stderr)
        return 2
    except UnicodeEncodeError as error:  # of a file name: messages are escaped, and files are written as UTF-8
        if error.encoding == "utf-8":  # it lacks only surrogates
            raise
        lacks = f"this name has characters that the encoding {error.encoding} of this terminal lacks"
        print(f"error: {error.object}: {lacks}; set a locale of UTF-8: `export LC_ALL=C.UTF-8`", file=sys.stderr)
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


class _AsTyped(logging.Formatter):
    """Writes the commands in warnings in the form in which the user typed this command."""

    def format(self, record: logging.LogRecord) -> str:
        return as_typed(super().format(record))


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

    If a module is just being imported, the error comes after that: within, libraries may turn it into another error.
    """
    put_off: threading.Timer | None = None

    def on_signal(signum: int, frame: FrameType | None) -> None:
        nonlocal put_off
        if not _is_importing(frame):
            if signum == signal.SIGTERM:
                signal.signal(signum, signal.SIG_DFL)
            raise error
        if put_off is None:
            put_off = threading.Timer(_PUT_OFF, come_again)
            put_off.daemon = True
            put_off.start()

    def come_again() -> None:
        nonlocal put_off
        put_off = None
        if hasattr(signal, "pthread_kill"):  # to the main thread, because it wakes what waits there for a file
            signal.pthread_kill(main, signum)
        else:
            signal.raise_signal(signum)

    main, before = threading.get_ident(), signal.getsignal(signum)  # signals are handled in the main thread alone
    if before is not signal.SIG_IGN:
        signal.signal(signum, on_signal)
    try:
        yield
        if put_off is not None:
            raise error
    finally:
        if (timer := put_off) is not None:  # its thread may set put_off to None
            timer.cancel()
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


def as_typed(text: str) -> str:
    """Rewrite each `python -m transformer_mt.<stage>` in a text in the form in which the user typed this command."""
    prefix = _prefix()
    if prefix is None:
        return text
    return re.sub(r"(?<![\w/])python -m transformer_mt[. ](?=[a-z<])", f"{prefix} ", text)


def _prefix() -> str | None:
    """Return what the user typed before the stage; None for `python -m transformer_mt.<stage>`."""
    typed = Path(sys.argv[0])
    if typed.name == "transformer-mt":
        return "transformer-mt"
    if typed.parts[-2:] == ("transformer_mt", "__main__.py"):
        return "python -m transformer_mt"
    return None


def command(stage: str, *arguments: str) -> list[str]:
    """Return the command of a stage as a list of words, in the form in which the user typed this command."""
    match _prefix():
        case "transformer-mt":
            return [_console_script(), stage, *arguments]
        case None:
            return [python(), "-m", f"transformer_mt.{stage}", *arguments]
        case _:
            return [python(), "-m", "transformer_mt", stage, *arguments]


def _console_script() -> str:
    """Return the name of the console script if the shell finds it by its name, else its path."""
    found = shutil.which("transformer-mt")
    if found and Path(found).resolve() == Path(sys.argv[0]).resolve():
        return "transformer-mt"
    return shown(Path(sys.argv[0]))


def python() -> str:
    """Return the path of the running Python, as one would type it here."""
    return shown(Path(sys.executable))


def shown(path: Path) -> str:
    """Return a path as text: relative if it is below the working directory, else absolute."""
    path = Path(os.path.abspath(path))
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
