"""Searches of CTranslate2: how they are asked for, and how hypotheses are made of their results. Imports no PyTorch.

S source positions  T target positions
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from transformer_mt.decoding.engine import LEAST_COVERAGE, Sentence, power_of_length
from transformer_mt.decoding.hypothesis import Hypothesis
from transformer_mt.decoding.lengths import length_penalty
from transformer_mt.decoding.words import byte_of
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.vocabulary import BOS, EOS, PAD

# Beam search ends when this many times beam_size hypotheses are finished; CTranslate2 has no other rule. With this
# value it translated all of 300 captions as our search does without patience.
LONG_PATIENCE = 1.5
SHORTEST_PAUSE, LONGEST_PAUSE = 0.0002, 0.01  # seconds between two checks whether a batch is done


@dataclass(frozen=True)
class Vocabularies:
    """The pieces of both languages, listed by id."""

    source: list[str]
    target: list[str]

    @cached_property
    def target_ids(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self.target)}

    @cached_property
    def target_bytes(self) -> dict[int, int]:
        """The byte that each piece of a byte stands for."""
        bytes_V = enumerate(map(byte_of, self.target))
        return {number: byte for number, byte in bytes_V if byte is not None}

    def is_utf8(self, tokens: Sequence[int]) -> bool:
        """Whether the bytes among these pieces spell characters."""
        spelt = bytes(self.target_bytes.get(token, ord(" ")) for token in tokens)
        return spelt.decode("utf-8", errors="ignore").encode("utf-8") == spelt

    def pieces(self, source: Sequence[int]) -> list[str]:
        """The pieces of a source as CTranslate2 takes them: without EOS, which it adds."""
        return [self.source[i] for i in source[:-1]]


@dataclass
class Found:
    """A hypothesis as CTranslate2's search returns it."""

    tokens: list[int]
    log_prob: float
    attention_TS: list[list[float]]
    """One row for each token, without EOS of the source; empty unless asked for."""
    is_changed: bool = False
    """Whether its tokens have been changed, so that log_prob no longer belongs to them."""


@dataclass(frozen=True)
class Search:
    """The searches that one call of the engine's `translate_unordered` makes."""

    translator: Any
    """A ctranslate2.Translator."""
    workers: int
    """The number of batches that it translates at a time."""
    vocabularies: Vocabularies
    sentences: Sequence[Sentence]
    options: dict[str, Any]
    max_extra_length: int
    max_positions: int

    def limit(self, number: int) -> int:
        """The most tokens of the translation of a sentence, EOS included."""
        return self.sentences[number].max_length(self.max_extra_length, self.max_positions)

    def run(
        self, batches: Sequence[list[int]], progress: Callable[[int], None] | None = None
    ) -> dict[int, list[Found]]:
        """The hypotheses of each sentence of these batches, no longer than the longest source of the batch allows."""
        found = {}
        for batch, results in completed(self._begin, batches, self.workers):
            for number, result in zip(batches[batch], results, strict=True):
                found[number] = self._found(result)
            if progress is not None:
                progress(len(results))
        return found

    def in_utf8(self, found: dict[int, list[Found]]) -> dict[int, list[Found]]:
        """The hypotheses whose bytes spell characters. A sentence that has others is searched again without the pieces
        of bytes beyond ASCII, because CTranslate2 cannot be told which piece may follow which."""
        kept = {n: [h for h in found[n] if self.vocabularies.is_utf8(h.tokens)] for n in found}
        lost = {n: len(found[n]) - len(kept[n]) for n in found if len(kept[n]) < len(found[n])}
        target = self.vocabularies.target
        not_ascii = [[target[piece]] for piece, byte in self.vocabularies.target_bytes.items() if byte > 0x7F]
        search = replace(self, options=self.options | {"suppress_sequences": not_ascii})
        for number, others in search.run([[number] for number in lost]).items():
            if self.options["beam_size"] == 1:  # the best of more samples would be no samples
                others = others[: lost[number]]
            kept[number] += [replace(ended(other, self.limit(number)), is_changed=True) for other in others]
        return kept

    def _begin(self, numbers: Sequence[int]) -> list[Any]:
        """Let a batch be translated in the background; returns an asynchronous result for each sentence."""
        batch = [self.sentences[number] for number in numbers]
        longest = max(self.limit(number) for number in numbers)
        # CTranslate2 refuses a minimum above the greatest length, which includes EOS.
        options = self.options | {"min_decoding_length": min(self.options["min_decoding_length"], longest - 1)}
        results: list[Any] = self.translator.translate_batch(
            [self.vocabularies.pieces(sentence.source) for sentence in batch],
            [[self.vocabularies.target[i] for i in sentence.prefix] for sentence in batch],
            max_input_length=0,  # no source is cut
            max_decoding_length=longest,
            return_scores=True,
            return_end_token=True,
            asynchronous=True,
            **options,
        )
        return results

    def _found(self, result: Any) -> list[Found]:
        """The hypotheses of a TranslationResult. Its scores are log-probabilities divided by a power of the length."""
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
    """Yield (number of the batch, its results) for each batch when it is done.

    `begin` gives CTranslate2 a batch, and returns its asynchronous results. At most two batches for each worker are
    under way, because a batch cannot be cancelled. This function checks and sleeps by turns, so that Python can handle
    Ctrl-C, which it cannot do while it waits for a result inside CTranslate2.
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
        else:  # for a tenth of the time waited so far, so that no wait becomes more than a tenth longer
            time.sleep(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, (time.monotonic() - since) / 10)))


def search_options(decoding: DecodingConfig) -> dict[str, Any]:
    """Our settings of decoding as arguments of CTranslate2's `translate_batch`."""
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
    power = power_of_length(decoding.length_penalty, decoding.length_penalty_form)
    ranked_anew = power > 0 or decoding.coverage_penalty > 0
    return options | {
        "beam_size": decoding.beam_size,
        "patience": max(1.0, decoding.patience) if decoding.patience else LONG_PATIENCE,
        "num_hypotheses": decoding.beam_size if ranked_anew else decoding.n_best,
        "length_penalty": power,
    }


def ended(hypothesis: Found, limit: int) -> Found:
    """Remove PAD and BOS, which only an untrained model writes, and end the hypothesis in EOS at the `limit`."""
    kept = [place for place, token in enumerate(hypothesis.tokens) if token not in (PAD, BOS)]
    tokens = [hypothesis.tokens[place] for place in kept]
    if tokens[-1:] != [EOS] or len(tokens) > limit:
        tokens = [*tokens[: limit - 1], EOS]
    if tokens == hypothesis.tokens:
        return hypothesis
    attention_TS = [hypothesis.attention_TS[place] for place in kept][: len(tokens)] if hypothesis.attention_TS else []
    return Found(tokens, -math.inf, attention_TS, is_changed=True)


def ranked(found: Sequence[Found], decoding: DecodingConfig, alignment: bool) -> list[Hypothesis]:
    """Rank the hypotheses: the n_best best of them, each once, best first; none if a score is not finite."""
    alpha, form = decoding.length_penalty, decoding.length_penalty_form
    hypotheses: list[Hypothesis] = []
    for hypothesis in found:
        score = hypothesis.log_prob / length_penalty(len(hypothesis.tokens), alpha, form)
        if decoding.coverage_penalty:
            score += _coverage_penalty(hypothesis.attention_TS, decoding.coverage_penalty)
        most_looked_at = [row_S.index(max(row_S)) for row_S in hypothesis.attention_TS[: len(hypothesis.tokens) - 1]]
        is_new = all(hypothesis.tokens != other.tokens for other in hypotheses)  # some are equal after they were cut
        if decoding.sampling or is_new:
            seen = most_looked_at if alignment else None
            hypotheses.append(Hypothesis(hypothesis.tokens, hypothesis.log_prob, score, seen))
    if not all(math.isfinite(hypothesis.score) for hypothesis in hypotheses):
        return []
    return sorted(hypotheses, key=lambda h: h.score, reverse=True)[: decoding.n_best]


def _coverage_penalty(attention_TS: Sequence[Sequence[float]], beta: float) -> float:
    """As `engine.coverage_penalty`. What a row lacks to a sum of 1 is the attention to EOS of the source."""
    received_S = [sum(column_T) for column_T in zip(*attention_TS, strict=True)]
    received_S.append(sum(1.0 - sum(row_S) for row_S in attention_TS))
    return beta * sum(math.log(min(max(received, LEAST_COVERAGE), 1.0)) for received in received_S)
