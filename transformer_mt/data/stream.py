"""Groups lines into blocks: of a fixed size, or of the lines that have arrived."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from queue import Queue
from threading import Thread
from typing import TypeVar

Line = TypeVar("Line")


@dataclass(frozen=True)
class _End:
    """Marks the end of the lines, with the error that stopped reading, if there was one."""

    error: Exception | None = None


def blocks(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Group lines into blocks of `size` lines; the last may have fewer."""
    lines = iter(lines)
    while block := list(islice(lines, size)):
        yield block


def arriving_blocks(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Group into a block the lines that have arrived since the last block: at least one line, at most `size`.

    A thread reads up to `size` lines ahead, also while a block is processed. An error in reading is raised here, after
    the lines that were read before it.
    """
    arrived: Queue[Line | _End] = Queue(maxsize=size)
    # A daemon thread, so that no command has to wait for a line that never comes.
    Thread(target=_read, args=(lines, arrived), daemon=True).start()
    return _taken(arrived, size)


def _read(lines: Iterable[Line], arrived: "Queue[Line | _End]") -> None:
    try:
        for line in lines:
            arrived.put(line)
    except Exception as error:  # it is raised where the lines are taken
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
