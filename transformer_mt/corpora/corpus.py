"""The pairs of a corpus, in blocks, with the place of each. The readers of all forms return them in this way."""

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from types import ModuleType

from transformer_mt.base.errors import CorpusError

BLOCK = 2000  # pairs: several blocks for each process fit into memory, and passing a block to a process is cheap
LONGEST = 1_000_000  # bytes of a line: more than any sentence; a file without line ends must not fill the memory
_SURROGATE, _LINE_ENDS = re.compile("[\ud800-\udfff]"), re.compile(r"[\r\n]+")
BAD_LINE = "bad_line"
OTHER_LANGUAGES = "other_languages"
LOW_SCORE = "low_score"


@dataclass(frozen=True)
class BadPair:
    """A line, row or unit from which no pair can be read."""

    fault: str
    """What is wrong and what to do, as words to put after the place: "has 1 column, but …"."""
    reason: str = BAD_LINE
    """The reason in REASONS under which it counts. Only BAD_LINE is a mistake. OTHER_LANGUAGES is for the units of a
    translation memory without one of the two languages, LOW_SCORE for pairs below `min_score`: both are left out."""


@dataclass(frozen=True)
class Block:
    """Successive pairs of one file. The limits of blocks depend only on the text, not on the machine."""

    file: str
    """The file, or the name of the data set, as messages show it."""
    first: int
    """The number of the first pair in the file, from 1: its line, row or unit."""
    pairs: Sequence[tuple[str, str] | BadPair]
    """Source and target of each pair, each a line of text; at most BLOCK pairs."""
    unit: str = "line"
    """What the numbers count: line, row or unit."""

    def place(self, index: int) -> str:
        """Return the file and the number of a pair of the block, for messages. Indices begin with 0."""
        number = self.first + index
        return f"{self.file}:{number}" if self.unit == "line" else f"{self.file} ({self.unit} {number:,})"

    def check(self) -> None:
        """Raises CorpusError, which names the place, at the first bad line."""
        for index, pair in enumerate(self.pairs):
            if isinstance(pair, BadPair) and pair.reason == BAD_LINE:
                raise CorpusError(f"{self.place(index)}: {pair.fault}")


@dataclass(frozen=True)
class Corpus:
    """The pairs of a corpus. They are not kept in memory: each call of `blocks` or `pairs` reads them again."""

    blocks: Callable[[], Iterator[Block]]
    """Reads all pairs, in order. Raises CorpusError if a file, not only a line, cannot be read."""
    digest: Callable[[], str]
    """The SHA-256, hexadecimal, of the text; for the hub, of the name and the revision only."""
    num_pairs: int | None
    """The number of pairs, bad pairs included; None if it is unknown before reading them all."""

    def pairs(self, skip_bad: bool = False) -> Iterator[tuple[str, str]]:
        """Read all pairs, in order. Unless `skip_bad`, raises CorpusError as `Block.check` does."""
        for block in self.blocks():
            if not skip_bad:
                block.check()
            yield from (pair for pair in block.pairs if not isinstance(pair, BadPair))


def blocks_of_file(
    file: str, pairs: Iterable[tuple[str, str] | BadPair], unit: str = "line", first: int = 1
) -> Iterator[Block]:
    """Group the pairs of a file, in order, into blocks. `first` is the number of its first pair."""
    remaining = iter(pairs)
    while block := list(islice(remaining, BLOCK)):
        yield Block(file, first, block, unit)
        first += len(block)


def pair_of_texts(source: str, target: str) -> tuple[str, str] | BadPair:
    """Return a pair of unchecked texts, each turned into one line; or the fault of one of them."""
    for side, text in (("source", source), ("target", target)):
        if "\0" in text:
            return BadPair(f"{side} contains the character NUL (U+0000); remove it")
        if not text.isascii() and _SURROGATE.search(text):
            return BadPair(f"{side} contains half a character (a surrogate); write the complete character")
        if len(text) > LONGEST:
            return BadPair(f"{side} has {len(text):,} characters; each side should be a sentence")
    return _LINE_ENDS.sub(" ", source), _LINE_ENDS.sub(" ", target)


def needed(module: str, what: str, otherwise: str) -> ModuleType:
    """Import a module at its first use, because some take most of a second, and some machines do not have them.

    Raises CorpusError if that fails. `what` is the beginning of its message, and says why the module is needed;
    `otherwise` is the end, and says what the user can do without the module.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise CorpusError(
            f"{what}, but the package that reads it cannot be imported ({error}). Install it: {sys.executable} -m pip "
            f"install {package}. Or {otherwise}"
        ) from None
