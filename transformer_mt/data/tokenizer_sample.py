"""Chooses the lines from which a tokenizer is trained: spread evenly, from every corpus, and bounded in memory."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

Line = tuple[str, str]  # source and target


@dataclass
class _Sample:
    """Every `step`-th pair of a corpus, from the first on."""

    step: int
    pairs: list[Line] = field(default_factory=list)
    num_bytes: int = 0
    """The bytes of all pairs, of each on its longer side."""

    def add(self, pair: Line) -> None:
        self.pairs.append(pair)
        self.num_bytes += _num_bytes(pair)

    def thin_out(self) -> None:
        """Keep every second of these pairs, and of all that come."""
        self.step *= 2
        del self.pairs[1::2]
        self.num_bytes = sum(map(_num_bytes, self.pairs))


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
    for corpus, (pairs, num_pairs) in enumerate(corpora):
        sample = _Sample(step=-(-(num_pairs or 1) // most_lines))
        samples.append(sample)
        for number, pair in enumerate(pairs):
            if number % sample.step or not stays(corpus, pair):
                continue
            sample.add(pair)
            while (too_many := sum(len(each.pairs) for each in samples) > most_lines) or (
                sum(each.num_bytes for each in samples) > most_bytes
            ):
                # Of the samples that can be thinned out, if there is one.
                largest = max(samples, key=lambda s: (len(s.pairs) > 1, len(s.pairs) if too_many else s.num_bytes))
                if len(largest.pairs) == 1:  # not even one line of each corpus has room: keep that
                    break
                largest.thin_out()
    sampled = [pair for sample in samples for pair in sample.pairs]
    return [source for source, _ in sampled], [target for _, target in sampled]


def _num_bytes(pair: Line) -> int:
    return max(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in pair)
