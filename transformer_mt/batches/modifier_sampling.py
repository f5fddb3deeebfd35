"""Changes the text of training pairs each time training reads them: typos, missing full stops, words to copy."""

from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from transformer_mt.base.languages import UNK
from transformer_mt.batches.encoded import EncodedCorpus, encoded_text, sentences_of
from transformer_mt.settings.training_settings import ModifiersConfig
from transformer_mt.text.modifiers import modified, symbols_in
from transformer_mt.text.tokenizer import Tokenizer, clean

_SAMPLE = 1000  # the growth of all text is estimated from this many pairs
_TRIES = 4  # of each modified pair, until it has room
_MARGIN = 1.5  # room for this many times the mean growth, because some batches grow more


class ModifierSampler:
    """Draws which pairs are modified, and how. `spaced` says of each corpus whether its source language has spaces."""

    def __init__(self, tokenizer: Tokenizer, shares: ModifiersConfig, spaced: Sequence[bool]) -> None:
        self._tokenizer, self._spaced, self._symbols = tokenizer, spaced, symbols_in(tokenizer)
        self._shares: list[tuple[str, float]] = [(name, share) for name, share in shares if share]

    def sampled(
        self, corpus: EncodedCorpus, pairs: NDArray[np.int64], seed: str, longest: int, total: tuple[int, int]
    ) -> EncodedCorpus:
        """Return these pairs, some of them modified, numbered from 0.

        The result is a pure function of the arguments. A pair is modified in another way if a side of it would have
        more than `longest` pieces, or if all sentences of this side together would have more than `total`: (source,
        target). It keeps its text if this fails again and again.
        """
        sides = sentences_of(corpus.source, pairs), sentences_of(corpus.target, pairs)
        spaced = [self._spaced[number] for number in np.searchsorted(np.cumsum(corpus.sizes), pairs, side="right")]
        random = Random(seed)
        names = [{name for name, share in self._shares if random.random() < share} for _ in pairs]
        chosen = {row: of for row, of in enumerate(names) if of and not any(UNK in side[row] for side in sides)}
        spare = [most - sum(map(len, side)) for side, most in zip(sides, total, strict=True)]
        for _ in range(_TRIES):
            rows, *encoded = self._modified(chosen, spaced, sides, random)
            chosen = {}
            for row, *pair in zip(rows, *encoded, strict=True):
                growth = [len(new) - len(side[row]) for new, side in zip(pair, sides, strict=True)]
                if max(map(len, pair)) > longest or any(more > room for more, room in zip(growth, spare, strict=True)):
                    chosen[row] = names[row]
                    continue
                spare = [room - more for more, room in zip(growth, spare, strict=True)]
                for new, side in zip(pair, sides, strict=True):
                    side[row] = new
        return EncodedCorpus(encoded_text(sides[0], np.uint32), encoded_text(sides[1], np.uint32))

    def budget(self, corpus: EncodedCorpus, tokens_per_batch: int) -> int:
        """Return a size for batches before the changes, which leaves enough room for the growth of nearly all batches.

        It is at least the length of the longest sentence of the corpus.
        """
        pairs = np.linspace(0, len(corpus) - 1, min(_SAMPLE, len(corpus))).astype(np.int64)
        grown = self.sampled(corpus, pairs, "0 0 0", longest=2**62, total=(2**62, 2**62))
        sides = (corpus.source, grown.source), (corpus.target, grown.target)
        growth = max(after.num_tokens / int(before.lengths(pairs).sum()) - 1 for before, after in sides)
        longest = max(corpus.source.longest, corpus.target.longest)
        return max(longest, int(tokens_per_batch / (1 + _MARGIN * max(growth, 0.0))))

    def _modified(
        self, chosen: dict[int, set[str]], spaced: list[bool], sides: Sequence[list[list[int]]], random: Random
    ) -> tuple[list[int], list[list[int]], list[list[int]]]:
        """Return those of the chosen rows whose text changes, and the ids of their new sources and targets."""
        rows, sources, targets = list[int](), list[str](), list[str]()
        for row, names in chosen.items():
            source, target = (
                clean(processor.decode(side[row][:-1]))
                for processor, side in zip((self._tokenizer.source, self._tokenizer.target), sides, strict=True)
            )
            new_source, new_target = modified(names, source, target, self._symbols, random, spaced=spaced[row])
            if (new_source, new_target) != (source, target):
                rows.append(row)
                sources.append(clean(new_source))
                targets.append(clean(new_target))
        return rows, *self._tokenizer.encode_cleaned(sources, targets)
