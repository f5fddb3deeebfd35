"""Which lines of the validation and test sets also stand in the training text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from transformer_mt.data.tokenizer import clean
from transformer_mt.wording import counted

_SHOWN = 3  # lines of each set


@dataclass
class Overlap:
    """The lines of one set that also stand in training, by their numbers from 1.

    Each is mapped to the first line of the training text that has the same source, the same target, or both.
    """

    num_pairs: int = 0
    sources: dict[int, int] = field(default_factory=dict)
    targets: dict[int, int] = field(default_factory=dict)
    pairs: dict[int, int] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """How many sources, targets and whole pairs of the set also stand in training."""
        return {"sources": len(self.sources), "targets": len(self.targets), "pairs": len(self.pairs)}

    def description(self, name: str) -> str:
        """The counts, and the first lines of whole pairs, or else of sources, or else of targets."""
        said = ", ".join(
            counted(len(lines), noun)
            for noun, lines in (("source", self.sources), ("target", self.targets), ("whole pair", self.pairs))
        )
        kind = "pair" if self.pairs else "source" if self.sources else "target"
        lines = sorted((self.pairs or self.sources or self.targets).items())[:_SHOWN]
        places = ", ".join(f"line {line} is line {training} of the training text" for line, training in lines)
        return (
            f"note: {name}: of {counted(self.num_pairs, 'pair')}, these also stand in training, and they stay there: "
            f"{said}. The first by their {kind}: {places}"
        )


class OverlapCounter:
    """Compares training pairs, one after another, with the validation and test sets, which are held in memory.

    Two texts are the same if `clean` makes the same of them. Blank ones are not compared.
    """

    def __init__(self, sets: Mapping[str, Iterable[tuple[str, str]]]) -> None:
        self.overlaps = {name: Overlap() for name in sets}
        # What is found is taken out: a text is found once, at its first line in training.
        self._sources: dict[str, list[tuple[str, int]]] = {}
        self._targets: dict[str, list[tuple[str, int]]] = {}
        self._pairs: dict[tuple[str, str], list[tuple[str, int]]] = {}
        for name, pairs in sets.items():
            for line, pair in enumerate(pairs, start=1):
                self.overlaps[name].num_pairs += 1
                self._hold(name, line, clean(pair[0]), clean(pair[1]))

    def add(self, pair: tuple[str, str], line: int) -> None:
        """A pair of the training text, and its line there, from 1."""
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
