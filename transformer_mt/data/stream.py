"""Lines by the block: of a file, or as they arrive."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from queue import Queue
from threading import Thread
from typing import TypeVar

Line = TypeVar("Line")


@dataclass(frozen=True)
class _End:
    """Comes after the last line, with what made reading stop, if it was a mistake."""

    error: Exception | None = None


def blocks(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Blocks of `size` lines; the last may have fewer."""
    lines = iter(lines)
    while block := list(islice(lines, size)):
        yield block


def arriving_blocks(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Blocks of what has arrived since the last one: at least one line, at most `size`.

    A thread reads from now on, also while a block is worked on, at most `size` lines ahead. What it raises is
    raised here, after the lines before.
    """
    arrived: Queue[Line | _End] = Queue(maxsize=size)
    # A daemon, so that no command waits for a line that never comes.
    Thread(target=_read, args=(lines, arrived), daemon=True).start()
    return _taken(arrived, size)


def _read(lines: Iterable[Line], arrived: "Queue[Line | _End]") -> None:
    try:
        for line in lines:
            arrived.put(line)
    except Exception as error:  # It belongs to whoever takes the lines.
        arrived.put(_End(error))
    else:
        arrived.put(_End())


def _taken(arrived: "Queue[Line | _End]", size: int) -> Iterator[list[Line]]:
    while True:
        block: list[Line] = []
        while not block or (len(block) < size and not arrived.empty()):
            line = arrived.get()
            if isinstance(line, _End):
                if block:
                    yield block
                if line.error is not None:
                    raise line.error
                return
            block.append(line)
        yield block
