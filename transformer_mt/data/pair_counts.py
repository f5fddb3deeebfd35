"""Decides which pairs stay in training, and counts the others by the reason why they do not."""

from dataclasses import dataclass

EncodedPair = tuple[list[int], list[int]]  # ids of source and target, EOS included

_ANY_RATIO = 10  # pieces; if neither side of a pair has more, its ratio does not matter


@dataclass
class PairCounts:
    """How many pairs of a split were kept and left out. Tokens are the pieces of the pairs kept, EOS included."""

    read: int = 0
    kept: int = 0
    blank: int = 0
    too_long: int = 0
    bad_ratio: int = 0
    source_tokens: int = 0
    target_tokens: int = 0

    def keep(self, ids: EncodedPair, max_length: int, max_ratio: float) -> bool:
        """Return whether a pair stays, and count it, or else the first reason why it does not."""
        source, target = len(ids[0]), len(ids[1])
        shorter, longer = min(source, target), max(source, target)
        self.read += 1
        if shorter == 1:  # only EOS
            self.blank += 1
        elif longer > max_length:
            self.too_long += 1
        elif longer - 1 > _ANY_RATIO and longer - 1 > max_ratio * (shorter - 1):
            self.bad_ratio += 1
        else:
            self.kept += 1
            self.source_tokens += source
            self.target_tokens += target
            return True
        return False

    @property
    def mean_lengths(self) -> dict[str, float]:
        """The mean number of pieces of a sentence, EOS included, in source and target. At least one pair was kept."""
        return {
            "source": round(self.source_tokens / self.kept, 2),
            "target": round(self.target_tokens / self.kept, 2),
        }

    @property
    def drops(self) -> str:
        """How many pairs were left out for each reason, as text."""
        reasons = {
            "with a blank side": self.blank,
            "too long": self.too_long,
            "of a bad ratio": self.bad_ratio,
        }
        return ", ".join(f"{number:,} {reason}" for reason, number in reasons.items() if number) or "none"
