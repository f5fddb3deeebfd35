"""Lines that a stage reads: from a file, a pipe or a terminal."""

import argparse
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from transformer_mt.data.corpus import InvalidText, count_lines, count_lines_left, decode_lines, read_lines
from transformer_mt.data.stream import arriving_blocks, blocks
from transformer_mt.errors import CorpusError, UserError
from transformer_mt.wording import counted


@dataclass(frozen=True)
class LineInput:
    """Lines, in blocks that are worked on together."""

    blocks: Iterator[list[str]]
    is_file: bool = False
    """Whether all of it is there already: then blocks are full."""
    num_lines: int | None = None
    """Of a file that is quickly counted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--errors and --buffer-lines."""
    parser.add_argument(
        "--errors", choices=["strict", "replace"], default="strict", help="of UTF-8: stop, or write U+FFFD and go on"
    )
    parser.add_argument(
        "--buffer-lines",
        metavar="N",
        type=_positive,
        default=2048,
        help="work on at most so many lines together (2048): more are faster, as they make batches of like length; "
        "of a pipe, no more than have arrived",
    )


def open_lines(path: Path | None, errors: InvalidText, buffer_lines: int) -> LineInput:
    """The lines of a file, or else of standard input: what is in a file, what has arrived, or each as it is typed.

    Raises UserError if there is no standard input; the blocks raise CorpusError as `read_lines` does.
    """
    if path is not None and not path.is_file():
        return LineInput(arriving_blocks(read_lines(path, errors), buffer_lines))
    if path is not None:
        num_lines = None if path.suffix == ".gz" else count_lines(path)
        return LineInput(blocks(read_lines(path, errors), buffer_lines), is_file=True, num_lines=num_lines)
    if sys.stdin is None:
        raise UserError("standard input is closed: give it a file or a pipe")
    if sys.stdin.isatty():
        return LineInput(blocks(decode_lines(_typed(sys.stdin.buffer), "standard input", errors), 1))
    # A file object of its own: a thread that still waits for its lines must not stand in the way of Python's end.
    file = os.fdopen(sys.stdin.fileno(), "rb", closefd=False)
    lines = decode_lines(file, "standard input", errors)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return LineInput(arriving_blocks(lines, buffer_lines))
    start = file.tell()
    num_lines = count_lines_left(file)
    file.seek(start)
    return LineInput(blocks(lines, buffer_lines), is_file=True, num_lines=num_lines)


def beside(lines: LineInput, path: Path, errors: InvalidText = "strict") -> Iterator[tuple[list[str], list[str]]]:
    """Each block, and the lines of a file that belong to its lines. Raises CorpusError unless there are as many.

    It does so at once if both are files that can be counted, else where the first of them ends.
    """
    if lines.num_lines is not None and path.is_file():
        _check_as_many(path, count_lines(path), lines.num_lines)
    return _beside(lines.blocks, path, errors)


def _beside(blocks: Iterator[list[str]], path: Path, errors: InvalidText) -> Iterator[tuple[list[str], list[str]]]:
    others, done = read_lines(path, errors), 0
    for block in blocks:
        found = list(islice(others, len(block)))
        _check_as_many(path, done + len(found), done + len(block))
        yield block, found
        done += len(block)
    _check_as_many(path, done + len(list(islice(others, 1))), done)


def _check_as_many(path: Path, num_others: int, num_lines: int) -> None:
    if num_others < num_lines:
        raise CorpusError(
            f"{path}: line {num_others + 1} is missing, and the input has one: line n of one belongs to line n of the "
            "other, and may be empty"
        )
    if num_others > num_lines:
        raise CorpusError(f"{path}: line {num_lines + 1} is too much: the input has {counted(num_lines, 'line')}")


def _typed(terminal: BinaryIO) -> Iterator[bytes]:
    """Lines at a prompt, until Ctrl-D."""
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = terminal.readline()
        if not line:
            print(file=sys.stderr)
            return
        yield line


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is no number from 1")
    return int(text)
