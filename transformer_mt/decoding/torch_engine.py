"""The engine that searches and scores with PyTorch.

B sentences  S source positions  T target positions  V vocabulary
"""

import math
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial

import torch
from torch import Tensor

from transformer_mt.base.cores import num_cores
from transformer_mt.base.errors import TranslationError
from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.base.worker_pool import Workers
from transformer_mt.decoding import engine
from transformer_mt.decoding.constrained_search import constrained_search, ends_word, has_phrases
from transformer_mt.decoding.constraints import Constraints, Once, Utf8
from transformer_mt.decoding.hypothesis import Hypothesis
from transformer_mt.decoding.sampling import greedy, sample
from transformer_mt.decoding.search import BY_SCORE, beam_search
from transformer_mt.inference.cuda_graphs import CudaCapture, make_room, with_cuda_graphs
from transformer_mt.inference.frozen import frozen
from transformer_mt.kernels.device import Device
from transformer_mt.kernels.matmul import Matmul, Quantization
from transformer_mt.models.attention_weights import (
    FloatArray,
    attends_to_source,
    attention_to_source,
    attention_weights,
)
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.settings.search_settings import DecodingConfig

# On a GPU, a sentence counts as at least this many source positions: the shortest has as many slots as most others.
LEAST_COUNTED = 16
NOT_FINITE_IN_INT8 = "ChooseQuantizationParams"  # the PyTorch function that fails on inputs that are not finite


class TorchEngine(engine.Engine):
    """Runs one of our models on a device. On a CPU, several processes of one thread each share the weights."""

    finds_terms = True

    def __init__(
        self,
        model: Seq2Seq,
        max_positions: int,
        device: Device,
        quantization: Quantization = "none",
        workers: int = 1,
        plain: bool = False,
        target_pieces: Sequence[str] = (),
    ) -> None:
        """`workers` is the number of processes on a CPU; 0 means one for each core available to this process.

        With `plain`, the search uses the model itself. `target_pieces` are the pieces of the target vocabulary in the
        order of their ids; if given, the search uses bytes, such as <0x0A>, only where they spell characters.
        Raises TranslationError if the model has no form for this precision.
        """
        super().__init__()
        if next(model.parameters()).device != device.torch_device:  # `to` would shard gathered parameters again
            model.to(device.torch_device)
        self.model = model.eval()
        self.max_positions, self.device = max_positions, device
        self.plain = plain
        self.matmul = Matmul(None if device.dtype == torch.float32 else device.dtype, quantization)
        self.utf8 = Utf8.of(target_pieces, device.torch_device)
        self.once = Once.of(target_pieces, device.torch_device)
        self.ends_word = list(map(ends_word, target_pieces))
        if self.matmul != Matmul():
            _ = self.searched  # made now, so that a model without this form raises an error here
        on_cpu = device.torch_device.type == "cpu"
        if not on_cpu:
            self.hardware = torch.cuda.get_device_name(device.torch_device)
        number = (workers or num_cores()) if on_cpu else 1
        # The workers have a weak reference to this engine, so that both end as soon as nobody uses the engine.
        this = weakref.proxy(self)
        # On a CPU, PyTorch and the C library keep memory for each thread that has computed.
        self.translators = Workers(partial(TorchEngine._translate_batch, this), number, in_one_thread=on_cpu)
        self.scorers = Workers(partial(TorchEngine._score_batch, this), number, in_one_thread=on_cpu)

    def _end(self) -> None:
        self.translators.close()
        self.scorers.close()

    @cached_property
    def searched(self) -> Seq2Seq:
        """The model in its form for search. Raises TranslationError if it has none in this precision."""
        if self.plain:
            return self.model
        form, device = frozen(self.model, self.matmul), self.device.torch_device
        if device.type != "cuda":
            return form
        return with_cuda_graphs(form, partial(CudaCapture, torch.cuda.Stream(device)))  # type: ignore[no-untyped-call]

    def translate_unordered(
        self, sentences: Sequence[engine.Sentence], decoding: DecodingConfig, wanted: engine.Wanted = engine.WITH_SCORES
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        if (wanted.alignment or decoding.coverage_penalty) and not attends_to_source(self.model):
            raise TranslationError(
                "an alignment or a coverage_penalty needs attention to the source, which this model, or a model of the "
                "ensemble, does not have (model.attention=none): leave it out, or use a model with attention"
            )
        on_gpu = self.device.torch_device.type == "cuda"
        least = LEAST_COUNTED if on_gpu else 0
        lengths = [max(len(sentence.source), least) for sentence in sentences]
        width = decoding.n_best if decoding.sampling else decoding.beam_size
        budget = engine.positions_per_batch(decoding, width, on_gpu=on_gpu)
        together = _even_batches(lengths, budget, self.translators.number)
        tasks = [
            ([sentences[number] for number in numbers], decoding, wanted.alignment, wanted.scores)
            for numbers in together
        ]
        if tasks:
            # The first use makes the form for search. This is before workers start, so that they share it.
            make_room(self.searched, [(len(numbers), lengths[numbers[0]]) for numbers in together], width)
        for batch, hypotheses_of in self.translators.map_unordered(tasks):
            if wanted.progress is not None:
                wanted.progress(len(hypotheses_of))
            yield together[batch], hypotheses_of

    def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        lengths = [max(len(source), len(target)) for source, target in pairs]
        together = _even_batches(lengths, engine.SCORED_TOGETHER, self.scorers.number)
        tasks = [[pairs[number] for number in numbers] for numbers in together]
        return engine.in_order((together[batch], log_probs) for batch, log_probs in self.scorers.map_unordered(tasks))

    def attention(self, source: list[int], target: list[int]) -> tuple[FloatArray, FloatArray, FloatArray]:
        source_1S, decoder_input_1T, _ = self._forced([(source, target)])
        with torch.inference_mode():
            weights = attention_weights(self.model, source_1S, decoder_input_1T)
        kinds = weights.encoder_LBHSS, weights.decoder_LBHTT, weights.cross_LBHTS
        encoder_LHSS, decoder_LHTT, cross_LHTS = (kind[:, 0].float().cpu().numpy() for kind in kinds)
        return encoder_LHSS, decoder_LHTT, cross_LHTS

    def _translate_batch(
        self, task: tuple[Sequence[engine.Sentence], DecodingConfig, bool, bool]
    ) -> list[list[Hypothesis]]:
        batch, decoding, alignment, scores = task
        with torch.inference_mode(), self._one_thread():
            try:
                found = self._search(batch, decoding, scores)
            except RuntimeError as error:
                if NOT_FINITE_IN_INT8 not in str(error):
                    raise
                if len(batch) == 1:
                    return [[]]
                return [of_one for sentence in batch for of_one in self._translate_batch(([sentence], *task[1:]))]
            if alignment or decoding.coverage_penalty:
                found = self._with_attention(batch, found, decoding, alignment)
        return [hypotheses[: decoding.n_best] for hypotheses in found]

    def _score_batch(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        source_BS, decoder_input_BT, target_BT = self._forced(pairs)
        with torch.inference_mode(), self._one_thread():
            if self.matmul == Matmul():
                logits_BTV = self.model(source_BS, decoder_input_BT)
            else:  # only the form for search computes in other precisions, and it works step by step
                logits_BTV = stepped(self.searched, source_BS, decoder_input_BT)
            log_probs_BT = logits_BTV.float().log_softmax(dim=-1).gather(2, target_BT[..., None])[..., 0]
        return [
            log_probs_T[: len(target)] for (_, target), log_probs_T in zip(pairs, log_probs_BT.tolist(), strict=True)
        ]

    def _search(
        self, batch: Sequence[engine.Sentence], decoding: DecodingConfig, scores: bool
    ) -> list[list[Hypothesis]]:
        model, (source_BS, constraints) = self.searched, self._for_search(batch, decoding)
        if decoding.sampling:
            return sample(model, source_BS, [sentence.number for sentence in batch], constraints, decoding)
        if decoding.beam_size == 1:
            return [[found] if found else [] for found in greedy(model, source_BS, constraints, decoding, scores)]
        if decoding.coverage_penalty:  # it changes the ranks of all hypotheses of a beam
            decoding = decoding.model_copy(update={"n_best": decoding.beam_size})
        found = beam_search(model, source_BS, constraints, decoding)
        # Most translations have their terms anyway.
        lacking = [
            b
            for b, sentence in enumerate(batch)
            if sentence.terms and not all(has_phrases(h.tokens, sentence.terms, self.ends_word) for h in found[b])
        ]
        if lacking:
            others = [batch[b] for b in lacking]
            terms = [sentence.terms for sentence in others]
            again = constrained_search(model, *self._for_search(others, decoding), decoding, terms, self.ends_word)
            for b, hypotheses in zip(lacking, again, strict=True):
                found[b] = hypotheses
        return found

    def _for_search(self, batch: Sequence[engine.Sentence], decoding: DecodingConfig) -> tuple[Tensor, Constraints]:
        """The sources of a batch, BS, and the constraints on its translations."""
        source_BS = _pad([sentence.source for sentence in batch]).to(self.device.torch_device)
        limits = [sentence.max_length(decoding.max_extra_length, self.max_positions) for sentence in batch]
        prefixes = [sentence.prefix for sentence in batch]
        once_BK = self.once.wanted([sentence.once for sentence in batch]) if self.once else None
        rules = decoding.no_repeat_ngram, decoding.min_length, self.utf8, self.once, once_BK
        return source_BS, Constraints(limits, prefixes, *rules)

    def _with_attention(
        self, batch: Sequence[engine.Sentence], found: list[list[Hypothesis]], decoding: DecodingConfig, alignment: bool
    ) -> list[list[Hypothesis]]:
        """Rank the hypotheses again with the coverage penalty, and add alignments if `alignment`."""
        pairs = [
            (sentence.source, hypothesis.tokens)
            for sentence, hypotheses in zip(batch, found, strict=True)
            for hypothesis in hypotheses
        ]
        if not pairs:  # no sentence had finite numbers
            return found
        source_NS, decoder_input_NT, _ = self._forced(pairs)
        attention_NTS = attention_to_source(self.model, source_NS, decoder_input_NT, decoding.alignment_layer)
        attentions, beta = zip(attention_NTS.cpu(), pairs, strict=True), decoding.coverage_penalty
        for hypotheses in found:
            for rank, hypothesis in enumerate(hypotheses):
                whole_TS, (source, tokens) = next(attentions)
                received_S = whole_TS[: len(tokens), : len(source)].float().sum(dim=0)
                score = hypothesis.score + engine.coverage_penalty(received_S.tolist(), beta)
                words_TS = whole_TS[: len(tokens) - 1, : len(source) - 1]  # without EOS
                looked_at = words_TS.argmax(dim=-1).tolist() if alignment and words_TS.shape[1] else None
                hypotheses[rank] = replace(hypothesis, score=score, alignment=looked_at)
            hypotheses.sort(key=BY_SCORE, reverse=True)
        return found

    def _forced(self, pairs: Sequence[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs and outputs of forced decoding, padded: sources BS, decoder inputs BT and targets BT."""
        source_BS = _pad([source for source, _ in pairs]).to(self.device.torch_device)
        target_BT = _pad([target for _, target in pairs]).to(self.device.torch_device)
        decoder_input_BT = target_BT.masked_fill(target_BT == EOS, PAD).roll(1, dims=1)
        decoder_input_BT[:, 0] = BOS
        return source_BS, decoder_input_BT, target_BT

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """On a CPU, use one thread: two processes of one thread are faster than one process of two threads."""
        before = torch.get_num_threads()
        if self.device.torch_device.type == "cpu":
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _even_batches(lengths: Sequence[int], positions: int, workers: int) -> list[list[int]]:
    """The numbers of the sentences in each batch. Each of several workers gets as many batches, of about equal size."""
    together = list(engine.batches(lengths, positions))
    if workers == 1 or not together:
        return together
    most = math.ceil(len(together) / workers) * workers
    # A larger budget never makes more batches.
    budgets = range(positions + 1)
    smallest = bisect_left(budgets, True, key=lambda budget: len(list(engine.batches(lengths, budget))) <= most)
    return list(engine.batches(lengths, smallest))


def stepped(model: Seq2Seq, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
    """The logits of forced decoding, BTV, computed position by position."""
    state, logits = model.start(source_BS, width=1), []
    for token_B in decoder_input_BT.unbind(dim=1):
        logits_B1V, state = model.step(token_B[:, None], state)
        logits.append(logits_B1V)
    return torch.cat(logits, dim=1)


def _pad(sentences: Sequence[list[int]]) -> Tensor:
    longest = max(map(len, sentences))
    return torch.tensor([ids + [PAD] * (longest - len(ids)) for ids in sentences])
