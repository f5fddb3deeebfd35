"""The engine that searches and scores with CTranslate2, for models that `export` wrote. Imports no PyTorch.

S source positions  T target positions
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from transformer_mt.base.cores import num_cores
from transformer_mt.base.errors import CheckpointError, TranslationError
from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.decoding import engine
from transformer_mt.decoding.hypothesis import Hypothesis, length_penalty
from transformer_mt.decoding.word_pieces import byte_of
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.storage.files import read_json

# Beam search ends when this many times beam_size hypotheses are finished; CTranslate2 has no other rule. With this
# value, it found the same translations of 300 captions as our search without patience.
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
        """The byte of each piece that is a byte, such as <0x0A>."""
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
    """One row for each token, without EOS of the source; empty unless requested."""
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
    sentences: Sequence[engine.Sentence]
    options: dict[str, Any]
    limits: list[int]
    """The most tokens of the translation of each sentence, EOS included."""

    def run(
        self, batches: Sequence[list[int]], progress: Callable[[int], None] | None = None
    ) -> dict[int, list[Found]]:
        """The hypotheses of each sentence of these batches. Their limit is that of the longest source in the batch."""
        found: dict[int, list[Found]] = {}
        for batch, results in completed(self._begin, batches, self.workers):
            found |= zip(batches[batch], map(self._found, results), strict=True)
            if progress is not None:
                progress(len(results))
        return found

    def in_utf8(self, found: dict[int, list[Found]]) -> dict[int, list[Found]]:
        """The hypotheses whose bytes spell characters. If a sentence has others, this searches it again without bytes
        beyond ASCII, because CTranslate2 has no option that says which piece may follow which."""
        kept = {n: [h for h in found[n] if self.vocabularies.is_utf8(h.tokens)] for n in found}
        lost = {n: len(found[n]) - len(kept[n]) for n in found if len(kept[n]) < len(found[n])}
        target = self.vocabularies.target
        not_ascii = [[target[piece]] for piece, byte in self.vocabularies.target_bytes.items() if byte > 0x7F]
        search = replace(self, options=self.options | {"suppress_sequences": not_ascii})
        for number, others in search.run([[number] for number in lost]).items():
            if self.options["beam_size"] == 1:  # taking the best of more samples would not be sampling
                others = others[: lost[number]]
            kept[number] += [replace(ended(other, self.limits[number]), is_changed=True) for other in others]
        return kept

    def _begin(self, numbers: Sequence[int]) -> list[Any]:
        """Begin to translate a batch in the background; returns an asynchronous result for each sentence."""
        batch = [self.sentences[number] for number in numbers]
        longest = max(self.limits[number] for number in numbers)
        # CTranslate2 rejects a minimum above the greatest length, which includes EOS.
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
        found, scores_N = [], result.scores  # read once, because each access copies the lists of all hypotheses
        attention_NTS = result.attention or [[]] * len(scores_N)
        for pieces, score, attention_TS in zip(result.hypotheses, scores_N, attention_NTS, strict=True):
            tokens = [self.vocabularies.target_ids[piece] for piece in pieces]
            found.append(Found(tokens, score * len(tokens) ** self.options["length_penalty"], attention_TS))
        return found


def completed(
    begin: Callable[[Sequence[int]], list[Any]], batches: Sequence[Sequence[int]], workers: int
) -> Iterator[tuple[int, list[Any]]]:
    """Yield (number of the batch, its results) for each batch when it is done; `begin` returns asynchronous results.

    At most two batches for each worker are in progress, because CTranslate2 cannot cancel one. This function checks and
    sleeps by turns, because Python cannot handle Ctrl-C while it waits inside CTranslate2.
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
        else:  # sleep for a tenth of the time waited so far, so that this adds at most a tenth to any wait
            time.sleep(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, (time.monotonic() - since) / 10)))


def search_options(decoding: DecodingConfig) -> dict[str, Any]:
    """Our decoding settings as arguments of CTranslate2's `translate_batch`."""
    options = {"min_decoding_length": decoding.min_length, "no_repeat_ngram_size": decoding.no_repeat_ngram}
    if decoding.sampling:
        return options | {
            "beam_size": 1,
            "num_hypotheses": 1 if decoding.top_k == 1 else decoding.n_best,
            "sampling_topk": decoding.top_k,
            "sampling_topp": decoding.top_p,
            "sampling_temperature": decoding.temperature,
            "length_penalty": 0.0,
        }
    power = engine.power_of_length(decoding.length_penalty, decoding.length_penalty_form)
    ranked_again = power > 0 or decoding.coverage_penalty > 0
    return options | {
        "beam_size": decoding.beam_size,
        "patience": max(1.0, decoding.patience) if decoding.patience else LONG_PATIENCE,
        "num_hypotheses": decoding.beam_size if ranked_again else decoding.n_best,
        "length_penalty": power,
    }


def ended(hypothesis: Found, limit: int) -> Found:
    """Remove PAD and BOS, which only an untrained model writes, and end the hypothesis with EOS at the `limit`."""
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
    if decoding.sampling:  # with top_k=1 all samples are equal, and CTranslate2 draws only one
        found = [*found] * (decoding.n_best // len(found))
    for hypothesis in found:
        score = hypothesis.log_prob / length_penalty(len(hypothesis.tokens), alpha, form)
        if decoding.coverage_penalty:
            received_S = list(map(sum, zip(*hypothesis.attention_TS, strict=True)))
            end = len(hypothesis.attention_TS) - sum(received_S)  # rows sum to 1 together with EOS
            score += engine.coverage_penalty([*received_S, end], decoding.coverage_penalty)
        most_looked_at = [row_S.index(max(row_S)) for row_S in hypothesis.attention_TS[: len(hypothesis.tokens) - 1]]
        is_new = all(hypothesis.tokens != other.tokens for other in hypotheses)  # cutting may make some equal
        if decoding.sampling or is_new:
            seen = most_looked_at if alignment else None
            hypotheses.append(Hypothesis(hypothesis.tokens, hypothesis.log_prob, score, seen))
    if not all(math.isfinite(hypothesis.score) for hypothesis in hypotheses):
        return []
    return sorted(hypotheses, key=lambda h: h.score, reverse=True)[: decoding.n_best]


class CTranslate2Engine(engine.Engine):
    """Runs an exported model on a device.

    It finds the same translations as TorchEngine, with these differences. Beam search ends when a certain number of
    hypotheses are finished, not when no alive hypothesis can still win. During the search, log-probabilities are
    divided by the power of the length that is nearest to the length penalty; the hypotheses found are ranked by the
    length penalty itself. A hypothesis at its greatest length ends there and is kept, even if better ones were found.
    The same seed draws other samples. If the bytes of a hypothesis spell no characters, one without bytes beyond ASCII
    replaces it; TorchEngine only searches for hypotheses with valid bytes.
    """

    samples_by_number = False

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
        """`max_positions` and `alignment_layer` are the settings that the model was exported with.

        `workers` is the number of batches that are translated at the same time, on a CPU by one thread each; 0 means
        one for each core. `compute_type` is one of CTranslate2's; default is the type of the file. Raises
        TranslationError if the package is missing or the device lacks the type; CheckpointError for a damaged file.
        """
        super().__init__()
        self.ctranslate2 = import_ctranslate2()
        self.directory, self.max_positions, self.alignment_layer = directory, max_positions, alignment_layer
        self.device, self.compute_type = device, compute_type
        self.vocabularies = _vocabularies(directory)
        self.on_cpu = device == "cpu" or (device == "auto" and not self.ctranslate2.get_cuda_device_count())
        self.hardware = "CPU" if self.on_cpu else "GPU"  # CTranslate2 does not say its name
        self.workers = workers or (num_cores() if self.on_cpu else 1)
        self.translator = self._load(self.workers)

    def translate_unordered(
        self, sentences: Sequence[engine.Sentence], decoding: DecodingConfig, wanted: engine.Wanted = engine.WITH_SCORES
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        with_attention = wanted.alignment or decoding.coverage_penalty > 0
        if with_attention and decoding.alignment_layer != self.alignment_layer:
            raise TranslationError(
                f"alignment_layer={decoding.alignment_layer}: {self.directory} was exported with "
                f"alignment_layer={self.alignment_layer}, and gives the attention of that layer only. Export again "
                f"with alignment_layer={decoding.alignment_layer}, or use the engine torch"
            )
        translator, workers = self._threads(sentences, decoding)
        options = search_options(decoding) | {"return_attention": with_attention}
        limits = [sentence.max_length(decoding.max_extra_length, self.max_positions) for sentence in sentences]
        search = Search(translator, workers, self.vocabularies, sentences, options, limits)
        lengths = [len(sentence.source) for sentence in sentences]
        width = 1 if decoding.sampling else decoding.beam_size
        budget = min(
            engine.positions_per_batch(decoding, width, on_gpu=not self.on_cpu), math.ceil(sum(lengths) / workers)
        )
        if with_attention and width > 1:
            budget = 1  # in a batch, the first token has the attention of another sentence (CTranslate2 4.8.5)
        found = search.run(list(engine.batches(lengths, budget)), wanted.progress)
        if width > 1:
            found |= search.run([[n] for n in found if any(len(h.tokens) > limits[n] for h in found[n])])
        found = {n: [ended(h, limits[n]) for h in found[n]] for n in range(len(sentences))}
        hypotheses = list(search.in_utf8(found).values())
        self._score_again(sentences, hypotheses, decoding)
        yield list(range(len(sentences))), [ranked(of_one, decoding, wanted.alignment) for of_one in hypotheses]

    def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        together = list(engine.batches([len(target) for _, target in pairs], engine.SCORED_TOGETHER))
        done = completed(partial(self._begin_scoring, pairs), together, self.workers)
        return engine.in_order((together[batch], [result.log_probs for result in results]) for batch, results in done)

    def _end(self) -> None:
        self.translator = None

    def _begin_scoring(self, pairs: Sequence[tuple[list[int], list[int]]], numbers: Sequence[int]) -> list[Any]:
        """Begin to score a batch of pairs in the background; returns an asynchronous result for each pair."""
        results: list[Any] = self.translator.score_batch(
            [self.vocabularies.pieces(pairs[number][0]) for number in numbers],
            [[self.vocabularies.target[i] for i in pairs[number][1][:-1]] for number in numbers],  # it adds EOS
            max_input_length=0,  # no source is cut
            asynchronous=True,
        )
        return results

    def _threads(self, sentences: Sequence[engine.Sentence], decoding: DecodingConfig) -> tuple[Any, int]:
        """The ctranslate2.Translator for these sentences, and the number of batches it translates at a time."""
        if not decoding.sampling or not sentences:
            return self.translator, self.workers
        # CTranslate2 seeds a thread's random generator only once, when it first draws: hence a new thread for each
        # call. And only one thread, because with several, the result would depend on the order in which they draw.
        self.ctranslate2.set_random_seed((decoding.seed + sentences[0].number) % 2**32)
        return self._load(workers=1), 1

    def _load(self, workers: int) -> Any:
        """A new ctranslate2.Translator, with one thread for each worker; all of them share the weights."""
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
        except ValueError as error:  # about the device or the type
            raise TranslationError(f"CTranslate2 cannot run {self.directory} with these options: {error}") from None
        except RuntimeError as error:
            if "CUDA" in str(error):
                raise TranslationError(f"device={self.device}: {error}; use device cpu") from None
            raise CheckpointError(f"{self.directory}: {error}; export the model again") from None

    def _score_again(
        self, sentences: Sequence[engine.Sentence], found: list[list[Found]], decoding: DecodingConfig
    ) -> None:
        """Compute log-probabilities by forced decoding where those of the search are not the model's own.

        CTranslate2 does not include prefixes, and normalises the probabilities over the allowed pieces only.
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


def import_ctranslate2() -> ModuleType:
    """Import the package. Raises TranslationError if it is not installed."""
    try:
        return import_module("ctranslate2")
    except ModuleNotFoundError:
        raise TranslationError("CTranslate2 is not installed: `python -m pip install ctranslate2`") from None


def compute_type(dtype: str, quantize: Literal["none", "int8"]) -> str:
    """The name of a precision in CTranslate2. fp32 without quantisation means the type of the exported weights."""
    name = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[dtype]
    if quantize == "int8":
        return f"int8_{name}"
    return "default" if dtype == "fp32" else name


def _vocabularies(directory: Path) -> Vocabularies:
    shared = directory / "shared_vocabulary.json"
    names = [shared, shared] if shared.is_file() else [directory / f"{x}_vocabulary.json" for x in ("source", "target")]
    try:
        return Vocabularies(*map(read_json, names))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{directory}: a vocabulary cannot be read ({error}); export the model again") from None
