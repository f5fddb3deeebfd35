"""The engine that searches and scores with CTranslate2, for models that `export` wrote. Imports no PyTorch.

S source positions  T target positions
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from transformer_mt.decoding.ctranslate2_search import (
    Found,
    Search,
    Vocabularies,
    completed,
    ended,
    ranked,
    search_options,
)
from transformer_mt.decoding.engine import Engine, Sentence, batches, positions_per_batch
from transformer_mt.decoding.hypothesis import Hypothesis
from transformer_mt.errors import CheckpointError, TranslationError
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.storage.json_text import read_json
from transformer_mt.worker_pool import num_cores

SCORED_TOGETHER = 4096  # target positions in a batch of pairs, with padding


class CTranslate2Engine(Engine):
    """Runs an exported model on a device.

    It finds the same translations as TorchEngine, with these differences. Beam search ends when a certain number of
    hypotheses are finished, not when no alive hypothesis can still win. During the search, log-probabilities are
    divided by the power of the length that is nearest to the length penalty; the hypotheses found are ranked by the
    length penalty itself. A hypothesis at its greatest length ends there and is kept, even if better ones were found.
    The same seed draws other samples. A hypothesis whose bytes spell no characters is replaced by one without bytes
    beyond ASCII; in TorchEngine, only those that spell some are searched for.
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
        """`max_positions` and `alignment_layer` are the settings that the model was exported with.

        `workers` is the number of batches that are translated at the same time, on a CPU by one thread each; 0 takes
        one for each core. `compute_type` is one of CTranslate2's; default is the type of the file. Raises
        TranslationError if the package is missing or the device cannot compute so, and CheckpointError if a file is
        missing or damaged.
        """
        super().__init__()
        self.ctranslate2 = import_ctranslate2()
        self.directory, self.max_positions, self.alignment_layer = directory, max_positions, alignment_layer
        self.device, self.compute_type = device, compute_type
        self.vocabularies = _vocabularies(directory)
        self.on_cpu = device == "cpu" or (device == "auto" and not self.ctranslate2.get_cuda_device_count())
        self.hardware = "CPU" if self.on_cpu else "GPU"  # CTranslate2 does not tell its name
        self.workers = workers or (num_cores() if self.on_cpu else 1)
        self.translator = self._load(self.workers)

    def translate_unordered(
        self,
        sentences: Sequence[Sentence],
        decoding: DecodingConfig,
        *,
        alignment: bool = False,
        scores: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        with_attention = alignment or decoding.coverage_penalty > 0
        if with_attention and decoding.alignment_layer != self.alignment_layer:
            raise TranslationError(
                f"alignment_layer={decoding.alignment_layer}: {self.directory} was exported with "
                f"alignment_layer={self.alignment_layer}, and gives the attention of that layer only. Export again "
                f"with alignment_layer={decoding.alignment_layer}, or use the engine torch"
            )
        translator, workers = self._threads(sentences, decoding)
        options = search_options(decoding) | {"return_attention": with_attention}
        search = Search(
            translator, workers, self.vocabularies, sentences, options, decoding.max_extra_length, self.max_positions
        )
        lengths = [len(sentence.source) for sentence in sentences]
        width = 1 if decoding.sampling else decoding.beam_size
        budget = min(positions_per_batch(decoding, width, on_gpu=not self.on_cpu), math.ceil(sum(lengths) / workers))
        if with_attention and width > 1:
            # In a batch, beam search returns another sentence's attention for the first token (CTranslate2 4.8.5).
            budget = 1
        found = search.run(list(batches(lengths, budget)), progress)
        if width > 1:
            found |= search.run([[n] for n in found if any(len(h.tokens) > search.limit(n) for h in found[n])])
        found = {n: [ended(h, search.limit(n)) for h in found[n]] for n in range(len(sentences))}
        hypotheses = list(search.in_utf8(found).values())
        self._score_again(sentences, hypotheses, decoding)
        yield list(range(len(sentences))), [ranked(of_one, decoding, alignment) for of_one in hypotheses]

    def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        together = list(batches([len(target) for _, target in pairs], SCORED_TOGETHER))
        scores: list[list[float]] = [[] for _ in pairs]
        for batch, results in completed(partial(self._begin_scoring, pairs), together, self.workers):
            for number, result in zip(together[batch], results, strict=True):
                scores[number] = result.log_probs
        return scores

    def _end(self) -> None:
        self.translator = None

    def _begin_scoring(self, pairs: Sequence[tuple[list[int], list[int]]], numbers: Sequence[int]) -> list[Any]:
        """Let a batch of pairs be scored in the background; returns an asynchronous result for each pair."""
        results: list[Any] = self.translator.score_batch(
            [self.vocabularies.pieces(pairs[number][0]) for number in numbers],
            [[self.vocabularies.target[i] for i in pairs[number][1][:-1]] for number in numbers],  # it adds EOS
            max_input_length=0,  # none is cut
            asynchronous=True,
        )
        return results

    def _threads(self, sentences: Sequence[Sentence], decoding: DecodingConfig) -> tuple[Any, int]:
        """The ctranslate2.Translator for these sentences, and the number of batches it translates at a time."""
        if not decoding.sampling or not sentences:
            return self.translator, self.workers
        # A thread's random generator is seeded only once, when it first draws: hence a new thread for each call. And
        # only one thread, because with several the order in which they draw would matter.
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

    def _score_again(self, sentences: Sequence[Sentence], found: list[list[Found]], decoding: DecodingConfig) -> None:
        """Compute log-probabilities by forced decoding where those of the search are not the model's own.

        CTranslate2 does not count prefixes, and makes the probabilities of the pieces that may be chosen sum to one.
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
        import ctranslate2
    except ModuleNotFoundError:
        raise TranslationError("CTranslate2 is not installed: `python -m pip install ctranslate2`") from None
    module: ModuleType = ctranslate2
    return module


def compute_type(dtype: Literal["fp32", "bf16", "fp16"], quantize: Literal["none", "int8"]) -> str:
    """The name of a precision in CTranslate2. fp32 without quantisation means the type of the exported weights."""
    name = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[dtype]
    if quantize == "int8":
        return f"int8_{name}"
    return "default" if dtype == "fp32" else name


def _vocabularies(directory: Path) -> Vocabularies:
    shared = directory / "shared_vocabulary.json"
    names = [shared, shared] if shared.is_file() else [directory / f"{x}_vocabulary.json" for x in ("source", "target")]
    try:
        source, target = map(read_json, names)
        if not all(isinstance(piece, str) for piece in [*source, *target]):
            raise ValueError("it holds no list of pieces")
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{directory}: a vocabulary cannot be read ({error}); export the model again") from None
    return Vocabularies(source, target)
