"""What is asked of CTranslate2's search, and what is made of its answers. Imports no PyTorch.

S source positions  T target positions
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformer_mt.decoding.engine import Hypothesis, Sentence
from transformer_mt.decoding.lengths import LEAST_COVERAGE, length_penalty
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.vocabulary import BOS, EOS, PAD

# Beam search ends when so many times beam_size hypotheses have ended. It knows no other end: with this all of 300
# captions were translated as by our search without such a limit.
LONG_PATIENCE = 1.5
SHORTEST_PAUSE, LONGEST_PAUSE = 0.0002, 0.01  # seconds between two questions whether a batch is done
TYPICAL_LENGTH = 25  # pieces of a translation, where one length penalty has to stand for all lengths


@dataclass(frozen=True)
class Vocabularies:
    """The pieces of both languages, by id."""

    source: list[str]
    target: list[str]

    @cached_property
    def target_ids(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self.target)}

    def pieces(self, source: Sequence[int]) -> list[str]:
        """What CTranslate2 is given of a source: it adds EOS."""
        return [self.source[i] for i in source[:-1]]


@dataclass
class Found:
    """A hypothesis as the search leaves it."""

    tokens: list[int]
    log_prob: float
    attention_TS: list[list[float]]
    """A row a token, EOS of the source left out; empty unless asked for."""
    is_changed: bool = False
    """Whether its tokens are others than those that log_prob is of."""


@dataclass(frozen=True)
class Search:
    """What one call of `translate` asks of CTranslate2."""

    translator: Any
    """A ctranslate2.Translator."""
    workers: int
    """How many batches it translates at a time."""
    vocabularies: Vocabularies
    sentences: Sequence[Sentence]
    options: dict[str, Any]
    max_extra_length: int
    max_positions: int

    def limit(self, number: int) -> int:
        """How many tokens a translation of a sentence has at most, EOS included."""
        return self.sentences[number].max_length(self.max_extra_length, self.max_positions)

    def run(
        self, batches: Sequence[list[int]], progress: Callable[[int], None] | None = None
    ) -> dict[int, list[Found]]:
        """The hypotheses of each sentence of these batches; they may be as long as the longest source allows."""
        found = {}
        for batch, results in completed(self._begin, batches, self.workers):
            for number, result in zip(batches[batch], results, strict=True):
                found[number] = self._found(result)
            if progress is not None:
                progress(len(results))
        return found

    def too_long(self, found: dict[int, list[Found]]) -> list[int]:
        """The sentences with a hypothesis that could become longer in its batch than it may."""
        return [n for n, hypotheses in found.items() if any(len(h.tokens) > self.limit(n) for h in hypotheses)]

    def _begin(self, numbers: Sequence[int]) -> list[Any]:
        """Have a batch translated in the background: a promise for each sentence."""
        batch = [self.sentences[number] for number in numbers]
        longest = max(self.limit(number) for number in numbers)
        # CTranslate2 refuses more than the greatest length, of which one is for EOS.
        options = self.options | {"min_decoding_length": min(self.options["min_decoding_length"], longest - 1)}
        results: list[Any] = self.translator.translate_batch(
            [self.vocabularies.pieces(sentence.source) for sentence in batch],
            [[self.vocabularies.target[i] for i in sentence.prefix] for sentence in batch],
            max_input_length=0,  # none is cut
            max_decoding_length=longest,
            return_scores=True,
            return_end_token=True,
            asynchronous=True,
            **options,
        )
        return results

    def _found(self, result: Any) -> list[Found]:
        """The hypotheses of a TranslationResult, whose scores were divided by a power of the length."""
        found = []
        for rank, pieces in enumerate(result.hypotheses):
            tokens = [self.vocabularies.target_ids[piece] for piece in pieces]
            attention_TS = result.attention[rank] if result.attention else []
            log_prob = result.scores[rank] * len(tokens) ** self.options["length_penalty"]
            found.append(Found(tokens, log_prob, attention_TS))
        return found


def completed(
    begin: Callable[[Sequence[int]], list[Any]], batches: Sequence[Sequence[int]], workers: int
) -> Iterator[tuple[int, list[Any]]]:
    """(Number of the batch, its results) of each batch, as they are done.

    `begin` gives CTranslate2 a batch, and returns its asynchronous results. No more than two batches a worker are
    begun and not done, because what was begun cannot be taken back. To ask and to sleep, again and again, lets Python
    handle Ctrl-C: while it waits in CTranslate2 for a result, it does not.
    """
    begun: dict[int, list[Any]] = {}
    num_begun, since = 0, time.monotonic()
    while begun or num_begun < len(batches):
        while num_begun < len(batches) and len(begun) < 2 * workers:
            begun[num_begun] = begin(batches[num_begun])
            num_begun += 1
        done = [batch for batch, results in begun.items() if all(result.done() for result in results)]
        for batch in done:
            yield batch, [result.result() for result in begun.pop(batch)]
        if done:
            since = time.monotonic()
        else:  # for a tenth of what has been waited: it makes a short wait no longer than that
            time.sleep(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, (time.monotonic() - since) / 10)))


def search_options(decoding: DecodingConfig) -> dict[str, Any]:
    """Arguments of CTranslate2's `translate_batch`."""
    options = {"min_decoding_length": decoding.min_length, "no_repeat_ngram_size": decoding.no_repeat_ngram}
    if decoding.sampling:
        return options | {
            "beam_size": 1,
            "num_hypotheses": decoding.n_best,
            "sampling_topk": decoding.top_k,
            "sampling_topp": decoding.top_p,
            "sampling_temperature": decoding.temperature,
            "length_penalty": 0.0,
        }
    power = power_of_length(decoding)
    ranked_anew = power > 0 or decoding.coverage_penalty > 0
    return options | {
        "beam_size": decoding.beam_size,
        "patience": max(1.0, decoding.patience) if decoding.patience else LONG_PATIENCE,
        "num_hypotheses": decoding.beam_size if ranked_anew else decoding.n_best,
        "length_penalty": power,
    }


def power_of_length(decoding: DecodingConfig, length: int = TYPICAL_LENGTH) -> float:
    """The power of the length that grows as the length penalty does, at translations of this length."""
    alpha, form = decoding.length_penalty, decoding.length_penalty_form
    growth = length_penalty(length + 1, alpha, form) / length_penalty(length, alpha, form)
    return math.log(growth) / math.log((length + 1) / length)


def ended(hypothesis: Found, limit: int) -> Found:
    """The hypothesis without PAD and BOS, which only an untrained model writes, and with EOS at the `limit`."""
    kept = [place for place, token in enumerate(hypothesis.tokens) if token not in (PAD, BOS)]
    tokens = [hypothesis.tokens[place] for place in kept]
    if tokens[-1:] != [EOS] or len(tokens) > limit:
        tokens = [*tokens[: limit - 1], EOS]
    if tokens == hypothesis.tokens:
        return hypothesis
    attention_TS = [hypothesis.attention_TS[place] for place in kept][: len(tokens)] if hypothesis.attention_TS else []
    return Found(tokens, -math.inf, attention_TS, is_changed=True)


def ranked(found: Sequence[Found], decoding: DecodingConfig, alignment: bool) -> list[Hypothesis]:
    """Each once, best first, at most n-best of them; none if a score is not finite."""
    alpha, form = decoding.length_penalty, decoding.length_penalty_form
    hypotheses: list[Hypothesis] = []
    for hypothesis in found:
        score = hypothesis.log_prob / length_penalty(len(hypothesis.tokens), alpha, form)
        if decoding.coverage_penalty:
            score += _coverage_penalty(hypothesis.attention_TS, decoding.coverage_penalty)
        most_looked_at = [row_S.index(max(row_S)) for row_S in hypothesis.attention_TS[: len(hypothesis.tokens) - 1]]
        if decoding.sampling or all(hypothesis.tokens != other.tokens for other in hypotheses):  # some were cut
            seen = most_looked_at if alignment else None
            hypotheses.append(Hypothesis(hypothesis.tokens, hypothesis.log_prob, score, seen))
    if not all(math.isfinite(hypothesis.score) for hypothesis in hypotheses):
        return []
    return sorted(hypotheses, key=lambda h: h.score, reverse=True)[: decoding.n_best]


def _coverage_penalty(attention_TS: Sequence[Sequence[float]], beta: float) -> float:
    """As `lengths.coverage_penalty`. What a row lacks of 1 was for EOS of the source."""
    received_S = [sum(column_T) for column_T in zip(*attention_TS, strict=True)]
    received_S.append(sum(1.0 - sum(row_S) for row_S in attention_TS))
    return beta * sum(math.log(min(max(received, LEAST_COVERAGE), 1.0)) for received in received_S)
