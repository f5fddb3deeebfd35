"""Samples subword pieces: the same text is cut into different pieces each time training reads it.

The methods are BPE-dropout (Provilkov et al. 2020) for bpe, and subword regularisation (Kudo 2018) for unigram. The
sampling of sentencepiece 0.2.3 differs between processes even with the same seed, so a resumed run would get other
pieces. Here the pieces are a pure function of seed, update and batch.

No piece crosses a space, so words are sampled one by one, from the letters of their pieces. Bytes stay bytes. Therefore
the text cannot change.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, count, pairwise
from random import Random
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor

from transformer_mt.batches.encoded import EncodedCorpus, EncodedText, Text, encoded_text
from transformer_mt.text.tokenizer import Tokenizer, user_symbols

Word = tuple[int, ...]  # the ids of its pieces
Lattice = list[tuple[list[float], list[int], list[int]]]

_CACHED = 2**16  # segmented words that each side keeps in its cache
_LONGEST_CACHED = 24  # characters; longer words, such as text without spaces, hardly occur twice
_SAMPLE = 1000  # the growth of all text is estimated from this many pairs
_FITTING = 0.95  # share of sentences for which there should be room when they have sampled pieces


class SubwordSampler:
    """Draws the pieces of sentences at random. `alpha`, between 0 and 1, says how much they vary.

    bpe: alpha is the probability of leaving out a possible merge; the paper uses 0.1.
    unigram: a segmentation is drawn with its probability to the power of alpha; a smaller alpha means more variation.
    Multi30k with 8,000 unigram pieces becomes 2.0, 1.3 and 1.03 times as long with alpha 0.1, 0.2 and 0.5; with bpe and
    0.1 it becomes 1.18 times as long.
    """

    stretch = 1.0  # a padded batch gets no more positions than it may have: `budget` leaves room

    def __init__(self, tokenizer: Tokenizer, algorithm: Literal["bpe", "unigram"], alpha: float) -> None:
        assert 0 < alpha < 1
        self._source = _Side(tokenizer.source, algorithm, alpha)
        self._target = (
            self._source if tokenizer.source is tokenizer.target else _Side(tokenizer.target, algorithm, alpha)
        )

    def sampled(
        self,
        corpus: EncodedCorpus,
        pairs: NDArray[np.int64],
        *,
        seed: int,
        step: int,
        batch: int,
        longest: int,
        total: tuple[int, int],
    ) -> EncodedCorpus:
        """Return these pairs in sampled pieces, numbered from 0. EOS stays.

        The result is a pure function of the arguments. A sentence keeps the pieces of the corpus if sampling would give
        it more than `longest` pieces, or its side more than `total`: (source, target). This does not change the pieces
        of the other sentences.
        """
        random = Random(f"{seed} {step} {batch}")  # Python hashes this text the same in every process
        source = self._source.sampled(corpus.source, pairs, longest, total[0], random)
        return EncodedCorpus(source, self._target.sampled(corpus.target, pairs, longest, total[1], random))

    def budget(self, corpus: EncodedCorpus, tokens_per_batch: int) -> int:
        """Return a size for batches before sampling with which 19 of 20 sentences then fit into `tokens_per_batch`.

        It is at least the length of the longest sentence of the corpus.
        """
        pairs = np.linspace(0, len(corpus) - 1, min(_SAMPLE, len(corpus))).astype(np.int64)
        unlimited = 2**62
        grown = self.sampled(corpus, pairs, seed=0, step=0, batch=0, longest=unlimited, total=(unlimited, unlimited))
        growth, longest = 1.0, 1
        for before, after in ((corpus.source, grown.source), (corpus.target, grown.target)):
            grown_by = after.lengths(np.arange(len(pairs))) / before.lengths(pairs)
            growth = max(growth, float(np.quantile(grown_by, _FITTING)))
            longest = max(longest, before.longest)
        return max(longest, int(tokens_per_batch / growth))


class _Side:
    """Samples the sentences of one language."""

    def __init__(self, processor: SentencePieceProcessor, algorithm: Literal["bpe", "unigram"], alpha: float) -> None:
        ids = list(range(processor.get_piece_size()))
        pieces: list[str] = processor.id_to_piece(ids)
        scores: list[float] = processor.get_score(ids)
        # Special pieces and bytes are not text, and symbols such as tags are never cut. All of these stay as they are,
        # and are not merged with other pieces.
        letters = {piece for piece in pieces if len(piece) == 1}
        symbols = set(user_symbols(processor))
        special = [processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i) for i in ids]
        fixed = np.array(special) | np.array([piece in symbols or not letters.issuperset(piece) for piece in pieces])
        ordinary = {pieces[i]: (i, scores[i]) for i in ids if not fixed[i]}
        self._fixed: list[bool] = fixed.tolist()
        self._begins_word = fixed | np.array([piece.startswith("\u2581") for piece in pieces])
        kind = BpeDropout if algorithm == "bpe" else UnigramSampling
        self._segmenter: BpeDropout | UnigramSampling = kind(pieces, ordinary, alpha)

    def sampled(self, text: Text, pairs: NDArray[np.int64], longest: int, total: int, random: Random) -> EncodedText:
        all_ids, lengths = text.gather(pairs)
        best = np.split(all_ids, lengths.cumsum()[:-1])
        spare = total - sum(map(len, best))
        sentences: list[Sequence[int]] = []
        for ids in best:
            other = self._sentence(ids, random)
            growth = len(other) - len(ids)
            if len(other) > longest or growth > spare:
                other, growth = ids.tolist(), 0
            spare -= growth
            sentences.append(other)
        return encoded_text(sentences, all_ids.dtype)

    def _sentence(self, ids: NDArray[np.integer], random: Random) -> list[int]:
        begins = self._begins_word[ids]
        begins[0] = True
        bounds = [*np.flatnonzero(begins).tolist(), len(ids)]
        pieces: list[int] = ids.tolist()
        found: list[int] = []
        for start, end in pairwise(bounds):
            if self._fixed[pieces[start]]:
                found.append(pieces[start])
                start += 1
            if start < end:
                found += self._segmenter.sample(tuple(pieces[start:end]), random)
        return found


class BpeDropout:
    """BPE-dropout: at each step, each possible merge is dropped with probability `dropout`.

    Provilkov et al. 2020, algorithm 1. It is computed as a series of trials: is the best merge kept, or else the second
    best, and so on; the word is finished when all are dropped. The numbers of the trials that drop a merge are drawn
    first. For a word, the same few sets of numbers occur often, so its pieces can be cached. sentencepiece never tries
    a dropped merge again, so it draws more pieces with the same dropout.
    """

    def __init__(self, pieces: list[str], ordinary: dict[str, tuple[int, float]], dropout: float) -> None:
        self._pieces, self._ordinary = pieces, ordinary
        self._num_characters = [len(piece) for piece in pieces]
        self._log_keep = math.log1p(-dropout)
        self._cached = lru_cache(_CACHED)(self.merge)

    def sample(self, word: Word, random: Random) -> Word:
        num_characters = sum([self._num_characters[i] for i in word])
        trial = self._num_kept(random)
        if trial >= num_characters - len(word):  # the first drop comes after all merges of this word
            return word
        dropped: list[int] = []
        # Each trial makes a merge or drops one, so there are no more of them than this.
        while trial < num_characters - 1 + len(dropped):
            dropped.append(trial)
            trial += 1 + self._num_kept(random)
        return (self._cached if num_characters <= _LONGEST_CACHED else self.merge)(word, tuple(dropped))

    def _num_kept(self, random: Random) -> int:
        """Draw the number of kept merges before the next dropped one; it has a geometric distribution."""
        return int(math.log(1.0 - random.random()) / self._log_keep)

    def merge(self, word: Word, dropped: Word) -> Word:
        """Merge the characters of a word. `dropped` has the numbers of the trials that drop a merge."""
        ordinary, numbers = self._ordinary, count()
        symbols = list("".join([self._pieces[i] for i in word]))
        while True:
            pairs = [left + right for left, right in pairwise(symbols)]
            merges = sorted([(-ordinary[pair][1], at) for at, pair in enumerate(pairs) if pair in ordinary])
            for (_, at), number in zip(merges, numbers, strict=False):
                if number not in dropped:
                    symbols[at : at + 2] = [pairs[at]]
                    break
            else:
                return tuple([ordinary[symbol][0] for symbol in symbols])


class UnigramSampling:
    """Draws from all segmentations (Kudo 2018, sec. 3.3, l = infinity): forward filtering, backward sampling."""

    def __init__(self, pieces: list[str], ordinary: dict[str, tuple[int, float]], alpha: float) -> None:
        self._pieces, self._ordinary, self._alpha = pieces, ordinary, alpha
        self._longest_piece = max(map(len, ordinary))
        self._cached = lru_cache(_CACHED)(self._lattice)

    def sample(self, word: Word, random: Random) -> Word:
        text = "".join([self._pieces[i] for i in word])
        lattice = (self._cached if len(text) <= _LONGEST_CACHED else self._lattice)(text)
        end, found = len(text), []
        while end:
            weights, starts, ids = lattice[end]
            chosen = bisect_right(weights, random.random() * weights[-1])
            found.append(ids[chosen])
            end = starts[chosen]
        return tuple(reversed(found))

    def _lattice(self, text: str) -> Lattice:
        """Return, for each position, the pieces that end there: their cumulative weights, their starts and their ids.

        The weight of a piece is the sum over all segmentations of the text, up to this position, that end in the piece.
        """
        logs = {0: 0.0}
        lattice: Lattice = [([], [], [])]
        for end in range(1, len(text) + 1):
            starts = [start for start in range(max(0, end - self._longest_piece), end) if start in logs]
            starts = [start for start in starts if text[start:end] in self._ordinary]
            found = [self._ordinary[text[start:end]] for start in starts]
            weights = [logs[start] + self._alpha * score for start, (_, score) in zip(starts, found, strict=True)]
            highest = max(weights, default=0.0)
            cumulative = list(accumulate(math.exp(weight - highest) for weight in weights))
            if cumulative:
                logs[end] = highest + math.log(cumulative[-1])
            lattice.append((cumulative, starts, [i for i, _ in found]))
        return lattice
