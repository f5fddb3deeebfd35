"""Lines come in blocks: full ones of a file, and of a stream those that have arrived."""

import random
import threading
import time
from queue import Queue

import pytest

from transformer_mt.terminal.line_input import _blocks_from, arriving_blocks, blocks


@pytest.mark.parametrize("make", [blocks, arriving_blocks])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 23])
def test_all_lines_come_in_order_in_blocks_that_are_not_too_large(make, count):
    lines = [f"line {number}" for number in range(count)]
    found = list(make(iter(lines), 5))
    assert [line for block in found for line in block] == lines
    assert all(1 <= len(block) <= 5 for block in found)


def test_more_lines_than_a_block_holds_wait_for_the_next():
    arrived = Queue()
    for line in "abcde":
        arrived.put(line)
    taken = _blocks_from(arrived, 2)
    assert [next(taken), next(taken)] == [["a", "b"], ["c", "d"]]


def test_blocks_are_full():
    assert list(blocks(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.fixture
def stream():
    """A function that lets lines arrive, None at the end; and those that have been read."""
    arriving: Queue[str | None] = Queue()
    return arriving.put, iter(arriving.get, None)


def test_a_block_is_what_has_arrived_and_waits_for_no_more(stream):
    arrive, lines = stream
    taken = arriving_blocks(lines, 100)
    arrive("a")
    assert next(taken) == ["a"]
    for line in "bcdef":
        arrive(line)
    arrive(None)
    found = [*next(taken)]
    while found[-1] != "f":
        found += next(taken)
    assert found == list("bcdef")
    assert list(taken) == []


def test_lines_are_read_while_a_block_is_worked_on_but_only_so_many():
    read = []
    taken = arriving_blocks((read.append(number) or number for number in range(100)), 3)
    first = next(taken)
    expected = len(first) + 3 + 1  # three wait, and the thread holds one that has no room
    until = time.monotonic() + 10.0
    while len(read) < expected and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(0.01)
    assert len(read) == expected


def test_what_reading_raises_is_raised_after_the_lines_before_it():
    def lines():
        yield from "abc"
        raise ValueError("broken")

    found = []
    with pytest.raises(ValueError, match="broken"):
        for block in arriving_blocks(lines(), 2):
            found += block
    assert found == list("abc")


def test_every_timing_gives_the_same_lines():
    draw = random.Random(3)

    def lines():
        for number in range(200):
            if draw.random() < 0.2:
                threading.Event().wait(0.0005)
            yield number

    assert [line for block in arriving_blocks(lines(), 7) for line in block] == list(range(200))
