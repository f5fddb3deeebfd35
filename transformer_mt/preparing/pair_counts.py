"""Counts the pairs that `prepare` keeps and, by reason, those that it leaves out."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import add

from transformer_mt.corpora.filters import REASONS


@dataclass
class PairCounts:
    """How many pairs of a split were kept and left out. Tokens are the pieces of the kept pairs, EOS included."""

    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """How many pairs were left out for each of REASONS. A reason with no pairs may be missing."""
    source_tokens: int = 0
    target_tokens: int = 0

    @property
    def read(self) -> int:
        """How many pairs were read, bad pairs included."""
        return self.kept + self.dropped.total()

    def __add__(self, other: "PairCounts") -> "PairCounts":
        """Return the sums of both counts."""
        return PairCounts(*map(add, vars(self).values(), vars(other).values()))

    @property
    def summary(self) -> dict[str, int]:
        """All numbers, by name."""
        reasons = {reason: self.dropped[reason] for reason in REASONS}
        tokens = {"source_tokens": self.source_tokens, "target_tokens": self.target_tokens}
        return {"read": self.read, "kept": self.kept, **reasons, **tokens}

    @property
    def mean_lengths(self) -> dict[str, float]:
        """The mean number of pieces of a sentence, EOS included, in source and target. At least one pair was kept."""
        return {"source": round(self.source_tokens / self.kept, 2), "target": round(self.target_tokens / self.kept, 2)}

    @property
    def drops(self) -> str:
        """How many pairs were left out for each reason, as text."""
        reasons = [f"{self.dropped[reason]:,} {words}" for reason, words in REASONS.items() if self.dropped[reason]]
        return ", ".join(reasons) or "none"


KEPT = "kept"


def drop_table(counts: Mapping[str, Counter[str]]) -> str:
    """Return a table for each corpus, and one for all. `counts` has the pairs kept (KEPT), and left out by REASONS."""
    shown = {**counts, "all corpora": sum(counts.values(), Counter())} if len(counts) > 1 else counts
    tables = "\n\n".join(_table(name, count) for name, count in shown.items())
    notes = [f"note: no pair of {name} is left" for name, count in counts.items() if not count[KEPT]]
    return "\n".join([tables, *notes])


def _table(name: str, count: Counter[str]) -> str:
    read = count.total()
    rows = {f"  {words}": count[reason] for reason, words in REASONS.items() if count[reason]}
    rows |= {"left out": read - count[KEPT], "kept": count[KEPT]}
    width, digits = max(map(len, rows)), len(f"{read:,}")
    cells = {label: f"{number:>{digits},}{number / max(read, 1):>9.2%}" for label, number in rows.items()}
    cells = {"": name, "pairs": f"{read:>{digits},}{'':9}", **cells}
    return "\n".join(f"{label:{width}}  {cell:>16}".rstrip() for label, cell in cells.items())
