"""Chooses the lines from which a tokenizer is trained: spread evenly, from every corpus, and bounded in memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

Line = tuple[str, str]  # source and target


@dataclass
class _Sample:
    """Every `step`-th pair of a corpus, from the first on."""

    step: int
    pairs: list[Line] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """The bytes of each pair on its longer side."""
    num_bytes: int = 0

    def add(self, pair: Line) -> None:
        size = max(_num_bytes(pair[0]), _num_bytes(pair[1]))
        self.pairs.append(pair)
        self.sizes.append(size)
        self.num_bytes += size

    def thin_out(self) -> None:
        """Keep every second of these pairs, and of all that come."""
        self.step *= 2
        del self.pairs[1::2]
        del self.sizes[1::2]
        self.num_bytes = sum(self.sizes)


def sample_of(
    corpora: Sequence[tuple[Iterable[Line], int | None]],
    most_lines: int,
    most_bytes: int,
    stays: Callable[[int, Line], bool] = lambda corpus, pair: True,
) -> tuple[list[str], list[str]]:
    """Return sources and targets: at most `most_lines` pairs, and of each language at most `most_bytes` of UTF-8.

    Each corpus comes with its number of pairs, or None if that is not known. It is read once, and every k-th of its
    pairs is taken, so that no part of it is left out. Of these, only those stay of which `stays` says so, given the
    number of the corpus, from 0, and the pair. Whenever there are too many, every second pair goes of the corpus that
    has the most of them: large corpora end with equal shares or nearly so, and small ones stay whole.
    """
    samples: list[_Sample] = []
    num_lines = num_bytes = 0
    for corpus, (pairs, num_pairs) in enumerate(corpora):
        sample = _Sample(step=-(-(num_pairs or 1) // most_lines))
        samples.append(sample)
        for number, pair in enumerate(pairs):
            if number % sample.step or not stays(corpus, pair):
                continue
            before = sample.num_bytes
            sample.add(pair)
            num_lines, num_bytes = num_lines + 1, num_bytes + sample.num_bytes - before
            while num_lines > most_lines or num_bytes > most_bytes:
                largest = _largest(samples, by_lines=num_lines > most_lines)
                if len(largest.pairs) == 1:  # not even one line of each corpus has room: keep that
                    break
                num_lines, num_bytes = num_lines - len(largest.pairs) // 2, num_bytes - largest.num_bytes
                largest.thin_out()
                num_bytes += largest.num_bytes
    return list(_sides(samples, 0)), list(_sides(samples, 1))


def _largest(samples: Sequence[_Sample], *, by_lines: bool) -> _Sample:
    """The sample with the most lines or bytes, among those that can be thinned out if there is one."""
    return max(samples, key=lambda s: (len(s.pairs) > 1, len(s.pairs) if by_lines else s.num_bytes))


def _sides(samples: Sequence[_Sample], side: int) -> Iterator[str]:
    return (pair[side] for sample in samples for pair in sample.pairs)


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
