"""Finds the lines of the validation and test sets that are also in the training text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from transformer_mt.data.tokenizer import clean
from transformer_mt.wording import counted

_SHOWN = 3  # lines of each set that are named


@dataclass
class Overlap:
    """The lines of one set that are also in the training text, by their numbers from 1.

    Each is mapped to the first line of the training text that has the same source, the same target, or both.
    """

    num_pairs: int = 0
    sources: dict[int, int] = field(default_factory=dict)
    targets: dict[int, int] = field(default_factory=dict)
    pairs: dict[int, int] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """How many sources, targets and whole pairs of the set are also in the training text."""
        return {"sources": len(self.sources), "targets": len(self.targets), "pairs": len(self.pairs)}

    def description(self, name: str) -> str:
        """Return a note with the counts and the first lines: of whole pairs, or else of sources, or else of targets."""
        said = ", ".join(
            counted(len(lines), noun)
            for noun, lines in (("source", self.sources), ("target", self.targets), ("whole pair", self.pairs))
        )
        kind = "pair" if self.pairs else "source" if self.sources else "target"
        lines = sorted((self.pairs or self.sources or self.targets).items())[:_SHOWN]
        places = ", ".join(f"line {line} is line {training} of the training text" for line, training in lines)
        return (
            f"note: {name}: of {counted(self.num_pairs, 'pair')}, these are also in the training text, and stay there: "
            f"{said}. The first by their {kind}: {places}"
        )


class OverlapCounter:
    """Compares training pairs, one after another, with the validation and test sets, which are held in memory.

    Two texts are the same if they are the same after `clean`. Blank texts are not compared.
    """

    def __init__(self, sets: Mapping[str, Iterable[tuple[str, str]]]) -> None:
        self.overlaps = {name: Overlap() for name in sets}
        # A text that was found is taken out, so that it is found only once, at its first line in training.
        self._sources: dict[str, list[tuple[str, int]]] = {}
        self._targets: dict[str, list[tuple[str, int]]] = {}
        self._pairs: dict[tuple[str, str], list[tuple[str, int]]] = {}
        for name, pairs in sets.items():
            for line, pair in enumerate(pairs, start=1):
                self.overlaps[name].num_pairs += 1
                self._hold(name, line, clean(pair[0]), clean(pair[1]))

    def add(self, pair: tuple[str, str], line: int) -> None:
        """Compare a pair of the training text; `line` is its line there, from 1."""
        source, target = clean(pair[0]), clean(pair[1])
        for name, own_line in self._pairs.pop((source, target), ()):
            self.overlaps[name].pairs[own_line] = line
        for name, own_line in self._sources.pop(source, ()):
            self.overlaps[name].sources[own_line] = line
        for name, own_line in self._targets.pop(target, ()):
            self.overlaps[name].targets[own_line] = line

    def _hold(self, name: str, line: int, source: str, target: str) -> None:
        if source:
            self._sources.setdefault(source, []).append((name, line))
        if target:
            self._targets.setdefault(target, []).append((name, line))
        if source and target:
            self._pairs.setdefault((source, target), []).append((name, line))
