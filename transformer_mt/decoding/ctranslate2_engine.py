"""Search and forced decoding by CTranslate2, of a model that `export` wrote. Imports no PyTorch.

S source positions  T target positions
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from transformer_mt.config import DecodingConfig
from transformer_mt.decoding.engine import Engine, Hypothesis, Sentence
from transformer_mt.decoding.lengths import LEAST_COVERAGE, length_penalty
from transformer_mt.errors import CheckpointError, TranslationError
from transformer_mt.vocabulary import BOS, EOS, PAD

# Beam search ends when so many times beam_size hypotheses have ended. With 1 it ends too early for a length penalty:
# of 300 captions 4 were translated otherwise than by our search, and scored lower; with 1.5 none.
PATIENCE = 1.5
SCORED_TOGETHER = 4096  # target positions of a batch of pairs, padding included


class CTranslate2Engine(Engine):
    """An exported model on a device.

    It finds what TorchEngine finds, with these differences. Beam search ends when a number of hypotheses
    have ended, not when no other can overtake the best. While it runs, a log-probability is divided by that power of
    the length which is nearest to the length penalty; the hypotheses found are ranked by the penalty itself.
    Where one grows beyond its max_extra_length it is cut, and ends there. Samples are others for the same seed.
    """

    def __init__(
        self,
        directory: Path,
        max_positions: int,
        alignment_layer: int,
        *,
        device: str = "auto",
        workers: int = 0,
        compute_type: str = "default",
    ) -> None:
        """`max_positions` and `alignment_layer` are the settings it was exported with.

        `workers` translate a batch each at the same time, on a CPU with a thread each; 0 takes one a core.
        `compute_type` is CTranslate2's; default is that of the file. Raises TranslationError if the package is
        missing or the device cannot do it, CheckpointError if a file is missing or damaged.
        """
        self.ctranslate2 = import_ctranslate2()
        self.directory, self.max_positions, self.alignment_layer = directory, max_positions, alignment_layer
        self.device, self.compute_type = device, compute_type
        source, self.target_pieces = _vocabularies(directory)
        self.source_pieces = source
        self.target_ids = {piece: number for number, piece in enumerate(self.target_pieces)}
        on_cpu = device == "cpu" or (device == "auto" and not self.ctranslate2.get_cuda_device_count())
        self.workers = workers or ((os.cpu_count() or 1) if on_cpu else 1)
        self.translator = self._open(self.workers)

    def translate(
        self,
        sentences: Sequence[Sentence],
        decoding: DecodingConfig,
        *,
        alignment: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        with_attention = alignment or decoding.coverage_penalty > 0
        if with_attention and decoding.alignment_layer != self.alignment_layer:
            raise TranslationError(
                f"alignment_layer={decoding.alignment_layer}: {self.directory} was exported with "
                f"alignment_layer={self.alignment_layer}, and holds the attention of that layer alone. Export again "
                f"with alignment_layer={decoding.alignment_layer}, or use the engine torch"
            )
        found: list[list[_Found]] = [[] for _ in sentences]
        for numbers, batch in self._search(sentences, decoding, with_attention):
            for number, hypotheses in zip(numbers, batch, strict=True):
                limit = min(len(sentences[number].source) + decoding.max_extra_length, self.max_positions)
                found[number] = [_ended(hypothesis, limit) for hypothesis in hypotheses]
            if progress is not None:
                progress(len(numbers))
        self._score_again(sentences, found, decoding)
        return [_ranked(hypotheses, decoding, alignment) for hypotheses in found]

    def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        results = self.translator.score_batch(
            [self._pieces(source) for source, _ in pairs],
            [[self.target_pieces[i] for i in target[:-1]] for _, target in pairs],  # it adds EOS
            max_batch_size=SCORED_TOGETHER,
            batch_type="tokens",
            max_input_length=0,  # none is cut
        )
        return [result.log_probs for result in results]

    def _open(self, workers: int) -> Any:
        """Its own translator, which has one thread a worker and shares the weights among them."""
        kind, _, index = self.device.partition(":")
        try:
            return self.ctranslate2.Translator(
                str(self.directory),
                device=kind,
                device_index=int(index or 0),
                compute_type=self.compute_type,
                inter_threads=workers,
                intra_threads=1,
                max_queued_batches=-1,
            )
        except ValueError as error:  # of the device or the type
            raise TranslationError(f"CTranslate2 cannot run {self.directory} so: {error}") from None
        except RuntimeError as error:
            if "CUDA" in str(error):
                raise TranslationError(f"device={self.device}: {error}; use device cpu") from None
            raise CheckpointError(f"{self.directory}: {error}; export the model again") from None

    def _search(
        self, sentences: Sequence[Sentence], decoding: DecodingConfig, with_attention: bool
    ) -> Iterator[tuple[list[int], list[list["_Found"]]]]:
        """What is found for each batch, with the numbers of its sentences; in the background, batch after batch."""
        lengths = [len(sentence.source) for sentence in sentences]
        translator, workers = self.translator, self.workers
        if decoding.sampling and sentences:
            # A thread's generator is seeded once, when it first draws: hence new threads for each call, and one
            # of them only, or the order in which they draw would matter.
            self.ctranslate2.set_random_seed((decoding.seed + sentences[0].number) % 2**32)
            translator, workers = self._open(workers=1), 1
        hypotheses = 1 if decoding.sampling else decoding.beam_size
        budget = min(decoding.tokens_per_batch // hypotheses, math.ceil(sum(lengths) / workers))
        pending = []
        for numbers in _batches(lengths, budget):
            batch = [sentences[number] for number in numbers]
            options = search_options(decoding, len(batch[0].source))
            results = translator.translate_batch(
                [self._pieces(sentence.source) for sentence in batch],
                [[self.target_pieces[i] for i in sentence.prefix] for sentence in batch],
                max_input_length=0,  # none is cut
                max_decoding_length=min(len(batch[0].source) + decoding.max_extra_length, self.max_positions),
                return_scores=True,
                return_end_token=True,
                return_attention=with_attention,
                asynchronous=True,
                **options,
            )
            pending.append((numbers, results, options["length_penalty"]))
        for numbers, results, power in pending:
            yield numbers, [self._found(result.result(), power) for result in results]

    def _found(self, result: Any, power: float) -> list["_Found"]:
        """The hypotheses of a TranslationResult whose scores were divided by a power of the length."""
        found = []
        for rank, pieces in enumerate(result.hypotheses):
            tokens = [self.target_ids[piece] for piece in pieces]
            attention_TS = result.attention[rank] if result.attention else []
            log_prob = result.scores[rank] * len(tokens) ** power
            found.append(_Found(tokens, log_prob, attention_TS))
        return found

    def _score_again(
        self, sentences: Sequence[Sentence], found: list[list["_Found"]], decoding: DecodingConfig
    ) -> None:
        """Forced decoding where the search's log-probabilities are not the model's.

        CTranslate2 leaves prefixes out of them, and makes what is not forbidden, or may be drawn, sum to one.
        """
        changed = decoding.sampling or decoding.min_length > 0 or decoding.no_repeat_ngram > 0
        places = [
            (number, rank)
            for number, hypotheses in enumerate(found)
            for rank, hypothesis in enumerate(hypotheses)
            if changed or hypothesis.is_changed or sentences[number].prefix
        ]
        scores = self.score([(sentences[number].source, found[number][rank].tokens) for number, rank in places])
        for (number, rank), log_probs_T in zip(places, scores, strict=True):
            found[number][rank].log_prob = sum(log_probs_T)

    def _pieces(self, source: Sequence[int]) -> list[str]:
        return [self.source_pieces[i] for i in source[:-1]]  # it adds EOS


@dataclass
class _Found:
    """A hypothesis as the search leaves it."""

    tokens: list[int]
    log_prob: float
    attention_TS: list[list[float]]
    """A row a token, EOS of the source left out; empty unless asked for."""
    is_changed: bool = False
    """Whether its tokens are others than those that log_prob is of."""


def import_ctranslate2() -> ModuleType:
    """Raises TranslationError if it is not installed."""
    try:
        import ctranslate2
    except ModuleNotFoundError:
        raise TranslationError(
            "CTranslate2 is not installed: `python -m pip install 'transformer-mt[export]'`, or "
            "`python -m pip install ctranslate2`"
        ) from None
    module: ModuleType = ctranslate2
    return module


def compute_type(dtype: Literal["fp32", "bf16", "fp16"], quantize: Literal["none", "int8"]) -> str:
    """CTranslate2's word for it; fp32 without quantisation means the type of the exported weights."""
    match dtype, quantize:
        case "fp32", "none":
            return "default"
        case "fp32", "int8":
            return "int8_float32"
        case "bf16", _:
            return "bfloat16" if quantize == "none" else "int8_bfloat16"
        case _:
            return "float16" if quantize == "none" else "int8_float16"


def search_options(decoding: DecodingConfig, length: int) -> dict[str, Any]:
    """Arguments of CTranslate2's `translate_batch`, for sources of about this length."""
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
    power = power_of_length(decoding, length)
    ranked_anew = power > 0 or decoding.coverage_penalty > 0
    return options | {
        "beam_size": decoding.beam_size,
        "patience": PATIENCE,
        "num_hypotheses": decoding.beam_size if ranked_anew else decoding.n_best,
        "length_penalty": power,
    }


def power_of_length(decoding: DecodingConfig, length: int) -> float:
    """The power of the length that grows as the length penalty does, at translations of this length."""
    longer, shorter = (
        length_penalty(n, decoding.length_penalty, decoding.length_penalty_form) for n in (length + 1, length)
    )
    return math.log(longer / shorter) / math.log((length + 1) / length)


def _vocabularies(directory: Path) -> tuple[list[str], list[str]]:
    """The pieces of both languages, by id."""
    shared = directory / "shared_vocabulary.json"
    names = [shared, shared] if shared.is_file() else [directory / f"{x}_vocabulary.json" for x in ("source", "target")]
    try:
        source, target = (json.loads(path.read_text(encoding="utf-8")) for path in names)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{directory}: a vocabulary cannot be read ({error}); export the model again") from None
    return source, target


def _ended(hypothesis: _Found, limit: int) -> _Found:
    """The hypothesis without PAD and BOS, which only an untrained model writes, and with EOS at the `limit`."""
    kept = [place for place, token in enumerate(hypothesis.tokens) if token not in (PAD, BOS)]
    tokens = [hypothesis.tokens[place] for place in kept]
    if tokens[-1:] != [EOS] or len(tokens) > limit:
        tokens = [*tokens[: limit - 1], EOS]
    if tokens == hypothesis.tokens:
        return hypothesis
    attention_TS = [hypothesis.attention_TS[place] for place in kept][: len(tokens)] if hypothesis.attention_TS else []
    return _Found(tokens, -math.inf, attention_TS, is_changed=True)


def _ranked(found: Sequence[_Found], decoding: DecodingConfig, alignment: bool) -> list[Hypothesis]:
    """Each once, best first, at most n-best of them."""
    alpha, form = decoding.length_penalty, decoding.length_penalty_form
    hypotheses: list[Hypothesis] = []
    for hypothesis in found:
        score = hypothesis.log_prob / length_penalty(len(hypothesis.tokens), alpha, form)
        if decoding.coverage_penalty:
            score += _coverage_penalty(hypothesis.attention_TS, decoding.coverage_penalty)
        most_looked_at = [row_S.index(max(row_S)) for row_S in hypothesis.attention_TS[: len(hypothesis.tokens) - 1]]
        ranked = Hypothesis(hypothesis.tokens, hypothesis.log_prob, score, most_looked_at if alignment else None)
        if decoding.sampling or all(ranked.tokens != other.tokens for other in hypotheses):  # cut ones may be equal
            hypotheses.append(ranked)
    return sorted(hypotheses, key=lambda h: h.score, reverse=True)[: decoding.n_best]


def _coverage_penalty(attention_TS: Sequence[Sequence[float]], beta: float) -> float:
    """As `lengths.coverage_penalty`. What a row lacks of 1 was for EOS of the source."""
    received_S = [sum(column_T) for column_T in zip(*attention_TS, strict=True)]
    received_S.append(sum(1.0 - sum(row_S) for row_S in attention_TS))
    return beta * sum(math.log(min(max(received, LEAST_COVERAGE), 1.0)) for received in received_S)


def _batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Numbers of sentences of like length, longest first, as many together as the budget of positions allows."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number], reverse=True):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
