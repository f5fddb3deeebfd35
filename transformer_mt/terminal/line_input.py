"""Lines from files, pipes and terminals, in blocks."""

import argparse
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from queue import Queue
from threading import Thread
from typing import BinaryIO, TypeVar

from transformer_mt.base.errors import CorpusError, UserError
from transformer_mt.base.remote import Place, RemotePath
from transformer_mt.base.wording import LineProgress, counted
from transformer_mt.corpora import text_files
from transformer_mt.corpora.text_files import while_unchanged
from transformer_mt.documents.document import in_utf8
from transformer_mt.terminal import cli

Line = TypeVar("Line")


def blocks(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Group lines into blocks of `size` lines; the last may have fewer."""
    lines = iter(lines)
    while block := list(islice(lines, size)):
        yield block


def arriving_blocks(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Group the lines that have arrived since the last block into a block: at least one line, at most `size`.

    A thread reads up to `size` lines ahead, also while the caller processes a block. If reading fails, this function
    yields the lines before the failure first, and then raises the error.
    """
    arrived: Queue[Line | Exception | None] = Queue(maxsize=size)

    def read() -> None:
        end = None
        try:
            for line in lines:
                arrived.put(line)
        except Exception as error:  # `_blocks_from` raises it
            end = error
        arrived.put(end)

    # A daemon thread, so that no command waits at its end for a line that never comes.
    Thread(target=read, daemon=True).start()
    return _blocks_from(arrived, size)


def _blocks_from(arrived: "Queue[Line | Exception | None]", size: int) -> Iterator[list[Line]]:
    while True:
        block: list[Line] = []
        while not block or (len(block) < size and not arrived.empty()):
            line = arrived.get()
            if line is None or isinstance(line, Exception):
                if block:
                    yield block
                if line is not None:
                    raise line
                return
            block.append(line)
        yield block


@dataclass(frozen=True)
class LineInput:
    """The lines of the input, in blocks to be processed together."""

    blocks: Iterator[list[str]]
    is_file: bool = False
    """Whether the input is a file, so that no line has to be waited for and all blocks except the last are full."""
    num_lines: int | None = None
    """The number of lines, if the input is a file without compression; otherwise None."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments --errors and --buffer-lines."""
    about = "what to do with bytes that are not UTF-8: stop (strict, the default), or read them as U+FFFD (replace)"
    parser.add_argument("--errors", choices=["strict", "replace"], default="strict", help=about)
    about = (
        "process up to N lines together (default: 2048). More lines are faster, because sentences of a batch are "
        "then more similar in length. From a pipe, a block has only the lines that have arrived"
    )
    parser.add_argument("--buffer-lines", metavar="N", type=cli.positive, default=2048, help=about)


def open_lines(path: Place | None, errors: text_files.InvalidText, buffer_lines: int) -> LineInput:
    """Open a file, or standard input if `path` is None, and return its lines in blocks.

    A block holds up to `buffer_lines` lines of a file, those that have arrived from a pipe, or one line typed on a
    terminal. Raises UserError if standard input is closed. Reading the blocks raises the CorpusErrors of `read_lines`,
    or one that says that the file has changed since this function was called.
    """
    if path is not None and not path.is_file():
        return LineInput(arriving_blocks(text_files.read_lines(path, errors), buffer_lines))
    if path is not None:
        found = while_unchanged(blocks(text_files.read_lines(path, errors), buffer_lines), path, str(path))
        is_long = text_files.is_compressed(path) or isinstance(path, RemotePath)
        return LineInput(found, is_file=True, num_lines=None if is_long else text_files.survey(path).num_lines)
    file = _standard_input()
    if file.isatty():
        return LineInput(blocks(text_files.decode_lines(_typed(file), "standard input", errors), 1))
    lines = text_files.decode_lines(text_files.limited_lines(file, "standard input"), "standard input", errors)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return LineInput(arriving_blocks(lines, buffer_lines))
    found, start = while_unchanged(blocks(lines, buffer_lines), file.fileno(), "standard input"), file.tell()
    num_lines = text_files.survey_of(file).num_lines
    file.seek(start)
    return LineInput(found, is_file=True, num_lines=num_lines)


def _standard_input() -> BinaryIO:
    """Standard input for bytes. Raises UserError if it is closed."""
    if sys.stdin is None:
        raise UserError("standard input is closed: connect it to a file or a pipe")
    # A separate file object: with sys.stdin itself, a thread that still waits for lines would block Python's exit.
    return os.fdopen(sys.stdin.fileno(), "rb", closefd=False)


def read_document(path: Place | None, errors: text_files.InvalidText, form: str) -> str:
    """Read a file, or standard input if `path` is None, with its line ends.

    Raises the CorpusErrors of `read_lines`, and the errors of `in_utf8`.
    """
    name = str(path or "standard input")
    with text_files.opened(path) if path is not None else nullcontext(_standard_input()) as file:
        content = in_utf8(file.read(), form, errors)
    lines = [*text_files.limited_lines(io.BytesIO(content), name)]
    for _ in text_files.decode_lines(lines, name, errors):
        pass  # only for its errors and warnings, which give the line
    return content.decode("utf-8-sig", errors)


def write_output(lines: LineInput, written: Iterable[tuple[int, Iterable[str]]]) -> None:
    """Write texts to standard output, block by block, each with its number of input lines, and show the progress."""
    shown = LineProgress(lines.num_lines, is_wanted=lines.is_file and not sys.stdout.isatty())
    with cli.sigterm_raised(), cli.output() as output, shown as progress:
        for num_lines, texts in written:
            for text in texts:
                output.write(text.encode())
            output.flush()
            progress.more(num_lines)


def beside(lines: LineInput, path: Place, errors: text_files.InvalidText) -> Iterator[tuple[list[str], list[str]]]:
    """Yield each block with the lines of a second file that belong to it.

    Raises CorpusError if the two have different numbers of lines: before the first block if the lines of both can be
    counted, otherwise at the end of the shorter one. Raises CorpusError as soon as the second file has changed, too.
    """
    return while_unchanged(_beside(lines, path, errors), path, str(path))


def _beside(lines: LineInput, path: Place, errors: text_files.InvalidText) -> Iterator[tuple[list[str], list[str]]]:
    if lines.num_lines is not None and path.is_file():
        _check_equal(path, text_files.survey(path).num_lines, lines.num_lines)
    others, done = text_files.read_lines(path, errors), 0
    for block in lines.blocks:
        found = list(islice(others, len(block)))
        _check_equal(path, done + len(found), done + len(block))
        yield block, found
        done += len(block)
    _check_equal(path, done + len(list(islice(others, 1))), done)


def _check_equal(path: Place, num_others: int, num_lines: int) -> None:
    """Raises CorpusError unless the two numbers of lines are equal."""
    belongs = "Line n of this file belongs to line n of the input"
    if num_others < num_lines:
        raise CorpusError(f"{path}: line {num_others + 1} is missing, but the input has one. {belongs}: add the others")
    if num_others > num_lines:
        raise CorpusError(
            f"{path}: line {num_lines + 1} is one too many: the input has {counted(num_lines, 'line')}. {belongs}: "
            "remove the extra lines"
        )


def _typed(terminal: BinaryIO) -> Iterator[bytes]:
    """Show a prompt and read the lines that the user types, until Ctrl-D."""
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = terminal.readline()
        if not line:
            print(file=sys.stderr)
            return
        yield line
