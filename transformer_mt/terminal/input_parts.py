"""Divides a file of lines into parts that are translated one by one, and recognises the lines of each."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from transformer_mt.corpora.text_files import InvalidText, read_lines
from transformer_mt.data.stream import blocks
from transformer_mt.data.tags import tagged
from transformer_mt.errors import CorpusError
from transformer_mt.line_progress import LineProgress
from transformer_mt.terminal.line_input import LineInput, beside
from transformer_mt.terminal.translated_blocks import Block

MOST_PARTS = 4096  # so that a directory holds them easily, and a kill costs little of the work


@dataclass(frozen=True)
class Division:
    """How the lines of a file are divided."""

    num_lines: int
    unit: int
    """Lines are counted and compared by so many."""
    units_in_part: int
    digests: list[str]
    """Of the lines of each part, and of their prefixes."""

    @property
    def part_lines(self) -> int:
        """The number of lines of each part; the last may have fewer."""
        return self.unit * self.units_in_part

    def lines_of(self, parts: Iterable[int]) -> int:
        """The number of lines of these parts together; parts are numbered from 0."""
        return sum(min(self.part_lines, self.num_lines - part * self.part_lines) for part in parts)


@dataclass(frozen=True)
class LineFile:
    """A file of lines, and a file of their prefixes if there is one. Both can be read several times."""

    path: Path
    prefixes: Path | None
    errors: InvalidText
    tag: str | None = None
    """Put before each line."""

    def divided(self, unit: int, progress: LineProgress | None = None) -> Division:
        """Read all lines once. An empty file has one part without lines.

        Raises CorpusError for what cannot be read, and if there are more or fewer prefixes than lines.
        """
        num_lines, digests = 0, []
        for lines, prefixes in self._pairs(unit):
            digests.append(_digest(lines, prefixes))
            num_lines += len(lines)
            if progress is not None:
                progress.reached(num_lines)
        units_in_part = max(1, math.ceil(len(digests) / MOST_PARTS))
        parts = [digests[start : start + units_in_part] for start in range(0, len(digests), units_in_part)] or [[]]
        return Division(num_lines, unit, units_in_part, [_digest(part, None) for part in parts])

    def parts(self, division: Division, wanted: Sequence[int], block_lines: int) -> Iterator[tuple[int, list[Block]]]:
        """Yield (number of a part, its lines in blocks of `block_lines`) for the wanted parts, in rising order.

        Raises CorpusError if lines are not those that were divided.
        """
        pairs, position = self._pairs(division.unit), 0
        for number in wanted:
            start = number * division.units_in_part
            units = list(islice(pairs, start - position, start - position + division.units_in_part))
            position = start + len(units)
            first_line = number * division.part_lines + 1
            if _digest([_digest(*unit) for unit in units], None) != division.digests[number]:
                raise CorpusError(
                    f"{self.path}: has changed since this command began to read it (from line {first_line} on); put "
                    "it back as it was, and give the same command again"
                )
            yield number, list(_blocks(units, first_line, block_lines))

    def _pairs(self, size: int) -> Iterator[tuple[list[str], list[str] | None]]:
        """Blocks of lines with their prefixes."""
        found = blocks((tagged(self.tag, line) for line in read_lines(self.path, self.errors)), size)
        if self.prefixes is None:
            return ((lines, None) for lines in found)
        return ((lines, others) for lines, others in beside(LineInput(found), self.prefixes))


def _digest(lines: Sequence[str], others: Sequence[str] | None) -> str:
    """The SHA-256 of lines and their prefixes, hexadecimal. Line ends and packing do not matter."""
    digest = hashlib.sha256("\n".join(lines).encode())
    for text in others or ():
        digest.update(b"\n" + text.encode())
    digest.update(b"\n%d" % (0 if others is None else 1))
    return digest.hexdigest()


def _blocks(units: Sequence[tuple[list[str], list[str] | None]], first_line: int, block_lines: int) -> Iterator[Block]:
    """The same lines and prefixes in blocks of another size."""
    lines = [line for unit, _ in units for line in unit]
    prefixes = [prefix for _, others in units for prefix in others or ()]
    for start in range(0, len(lines), block_lines):
        stop = start + block_lines
        yield Block(first_line + start, lines[start:stop], prefixes[start:stop] if prefixes else None)
