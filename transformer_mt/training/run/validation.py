"""Measures the model on sentences that it is not trained on."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from transformer_mt.base.cores import num_cores
from transformer_mt.base.errors import CorpusError, TranslationError, UserError
from transformer_mt.base.wording import beginning, two_decimals
from transformer_mt.batches.batching import ordered_batches
from transformer_mt.batches.encoded import EncodedCorpus, sentences_of
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.decoding.engine import Sentence, Wanted, positions_per_batch
from transformer_mt.decoding.hypothesis import Hypothesis
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.evaluation.metrics import check_tokeniser, corpus_score
from transformer_mt.kernels.device import Device, do_without_refused_onednn, on_host
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.settings.corpus_settings import CorpusConfig
from transformer_mt.settings.model_settings import ModelConfig
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.settings.section import fingerprint
from transformer_mt.settings.training_settings import VALIDATION_METRICS, TrainingConfig, ValidationMetric
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.distributed import Ranks, whole_parameters
from transformer_mt.training.learning import BatchLoss, Learner
from transformer_mt.training.out_of_memory import Room, is_out_of_memory


@dataclass(frozen=True)
class ValidationSet:
    """Encoded pairs, the text of their targets in the same order, and what is needed to decode and to score them."""

    name: str
    """Its name in the configuration; empty for the first one, which decides which checkpoints are best."""
    corpus: EncodedCorpus
    first_source: str
    references: list[str]
    tokenizer: Tokenizer
    target_language: str
    max_extra_length: int
    max_positions: int
    tokens_per_batch: int
    num_decoded: int
    """The number of pairs to translate, from the first one on."""


def perplexity(nll: float) -> float:
    """The perplexity of a loss in nats per token."""
    return math.exp(min(nll, 700.0))


def diverges(nll: float, num_pieces: int) -> bool:
    """Whether a loss is more than twice that of a uniform guess, ln(num_pieces): a model without training has less."""
    return not nll <= 2 * math.log(num_pieces)


EXAMPLE = 100  # characters of each side, or less
GREEDY = DecodingConfig(beam_size=1)
FEW = 64  # sentences: to start processes takes longer than to translate so few in this one

LEAST_BLEU = 1.0
"""A BLEU below this is chance: one sentence of the validation set with four right words in a row can make it."""


@dataclass(frozen=True)
class ValidationScores:
    """The results of a validation: nll is unsmoothed, in nats per target token; the scores of texts are percentages."""

    values: Mapping[ValidationMetric, float]
    seconds: float
    example: str = ""
    """The first source and its translation: people see the model learn."""
    others: Mapping[str, "ValidationScores"] = field(default_factory=dict)
    """Those of the further validation sets, by their names in the configuration."""
    way: str = ""
    """How they were measured in training (`way_of_validation`)."""

    def __getitem__(self, metric: ValidationMetric) -> float:
        return self.values[metric]

    def goodness(self, metric: ValidationMetric) -> float:
        """Higher for a better model."""
        by = self._compared_by(metric)
        return VALIDATION_METRICS[by].sign * self[by]

    def rank(self, metric: ValidationMetric) -> float:
        """Higher for a better model. Rounded as it is printed, because smaller differences are chance."""
        by = self._compared_by(metric)
        shown = VALIDATION_METRICS[by]
        value = shown.sign * round(self._printed(by), shown.digits)
        return -math.inf if math.isnan(value) else value

    def _compared_by(self, metric: ValidationMetric) -> ValidationMetric:
        """The metric, or nll while BLEU says nothing yet: any model with a BLEU of 1 is better than those."""
        return "nll" if metric == "bleu" and self[metric] < LEAST_BLEU else metric

    def shown(self, metric: ValidationMetric) -> str:
        """The value as text, as it is printed where models are compared."""
        digits, value = VALIDATION_METRICS[metric].digits, self._printed(metric)
        return two_decimals(value) if digits == 2 else f"{value:.{digits}f}"

    def said(self, chosen: ValidationMetric) -> str:
        """The values of the printed metrics, as text, and those of the further validation sets."""
        shown = {VALIDATION_METRICS[metric].name: self._printed(metric) for metric in shown_metrics(chosen)}
        own = ", ".join(f"{name} {two_decimals(value)}" for name, value in shown.items())
        return "; ".join([own, *(f"{name}: {scores.said(chosen)}" for name, scores in self.others.items())])

    def _printed(self, metric: ValidationMetric) -> float:
        """The value, or the perplexity for nll."""
        return perplexity(self[metric]) if metric == "nll" else self[metric]

    def record(self) -> dict[str, float]:
        """The record for log.jsonl."""
        sets = {"": self.values} | {f"_{name}": each.values for name, each in self.others.items()}
        found = {f"valid_{metric}{name}": value for name, each in sets.items() for metric, value in each.items()}
        first = {"valid_nll": self["nll"], "valid_perplexity": perplexity(self["nll"])}
        return first | found | {"valid_seconds": self.seconds}


def shown_metrics(chosen: ValidationMetric) -> list[ValidationMetric]:
    """The printed metrics: two that everybody knows, and the chosen one."""
    printed: tuple[ValidationMetric, ...] = ("nll", "bleu", chosen)
    return list(dict.fromkeys(printed))


def load_validation(
    data_dir: Path,
    tokenizer: Tokenizer,
    corpus: CorpusConfig,
    model: ModelConfig,
    training: TrainingConfig,
    decoding: DecodingConfig,
) -> list[ValidationSet]:
    """Read the validation sets that `prepare` wrote. Raises CorpusError if their files have changed since."""
    found = []
    for split, text in corpus.validation_sets.items():
        encoded = EncodedCorpus.load(data_dir / split)
        references = list(read_lines(data_dir / f"{split}.target.txt"))
        if len(references) != len(encoded):
            raise CorpusError(
                f"{data_dir}/{split}.target.txt is not as it was written; delete {data_dir} and prepare again"
            )
        _, language = corpus.languages_of(text)
        check_tokeniser(language)  # an error now is better than one at the first validation
        name = split.removeprefix("valid").removeprefix("/")
        first_source = next(read_lines(data_dir / f"{split}.source.txt"))
        limits = decoding.max_extra_length, model.max_positions, training.tokens_per_batch
        num_decoded = min(training.valid_sentences or len(references), len(references))
        texts = encoded, first_source, references
        found.append(ValidationSet(name, *texts, tokenizer, language, *limits, num_decoded))
    return found


def validate(learner: Learner, validation: Sequence[ValidationSet]) -> ValidationScores:
    """Scores of the model in training, with the moving average of its weights if there is one."""
    learner.loss.eval()
    with learner.average.in_place_of_the_weights(), whole_parameters(learner.loss):
        scores = validate_model(learner.model, learner.device, validation, learner.ranks)
    learner.loss.train()
    return replace(scores, way=way_of_validation(validation, averaged=bool(learner.average.averages)))


def way_of_validation(validation: Sequence[ValidationSet], *, averaged: bool) -> str:
    """A hash of all that decides scores besides the text and the weights, or the moving `averaged` ones."""
    sets = [(each.name, each.target_language, each.max_extra_length, each.num_decoded) for each in validation]
    return fingerprint(str((sets, averaged)))


def validate_model(
    model: Seq2Seq, device: Device, validation: Sequence[ValidationSet], ranks: Ranks
) -> ValidationScores:
    """The scores on the first validation set, with those on the others. The model must be in evaluation mode."""
    first, *others = (_validate_on(each, model, device, ranks) for each in validation)
    return replace(first, others={each.name: scores for each, scores in zip(validation[1:], others, strict=True)})


@torch.no_grad()
def _validate_on(validation: ValidationSet, model: Seq2Seq, device: Device, ranks: Ranks) -> ValidationScores:
    """The likelihood of all pairs, and the scores of greedy translations. Each rank takes its share of both."""
    began, num_decoded, language = time.perf_counter(), validation.num_decoded, validation.target_language
    nll_of_share = _nll_of_share(model, device, validation, ranks)
    shares = ranks.gather((nll_of_share, _translate_share(model, device, validation, ranks)))
    nll = sum(nll for nll, _ in shares) / validation.corpus.target.num_tokens
    found = {pair: text for _, texts in shares for pair, text in texts.items()}
    hypotheses, references = [found[pair] for pair in range(num_decoded)], validation.references[:num_decoded]
    values = {
        metric: nll if metric == "nll" else corpus_score(metric, hypotheses, references, language)
        for metric in VALIDATION_METRICS
    }
    example = f"{beginning(validation.first_source, EXAMPLE)} → {beginning(hypotheses[0], EXAMPLE)}"
    return ValidationScores(values, time.perf_counter() - began, example)


def _nll_of_share(model: Seq2Seq, device: Device, validation: ValidationSet, ranks: Ranks) -> float:
    """The sum of the nll of this rank's share of the pairs, in nats, in the precision of training."""
    loss, room = BatchLoss(model, device, smoothing=0.0, compiled=False), Room()
    nlls = [torch.zeros((), device=device.torch_device)]
    for batch in islice(ordered_batches(validation.corpus, validation.tokens_per_batch), ranks.rank, None, ranks.size):
        nlls += room.fit([batch], lambda parts: [loss(part).nll for part in parts], loss, device)
    (nll_of_parts,) = on_host(torch.stack(nlls))  # the host waits for a GPU once
    return float(sum(nll_of_parts.tolist()))


def _translate_share(model: Seq2Seq, device: Device, validation: ValidationSet, ranks: Ranks) -> dict[int, str]:
    """The greedy translations, by pair, of this rank's share of the sentences that are to be translated."""
    pairs = np.arange(ranks.rank, validation.num_decoded, ranks.size)
    if not pairs.size:
        return {}
    sentences = [Sentence(ids) for ids in sentences_of(validation.corpus.source, pairs)]
    on_gpu = device.torch_device.type == "cuda"
    most = 1 if on_gpu or len(sentences) < FEW else num_cores() // ranks.local_size
    workers, positions = max(1, min(torch.get_num_threads(), most)), positions_per_batch(GREEDY, 1, on_gpu=on_gpu)
    while True:
        try:
            found = _greedy(model, device, validation, sentences, workers, positions)
            break
        except (UserError, OSError):
            if workers == 1:
                raise
            reason = "a process for it cannot start, or was killed"
        except (RuntimeError, MemoryError) as error:
            if positions == 1 or not is_out_of_memory(error):
                raise
            do_without_refused_onednn(error)
            reason = "there is too little memory"
        how = "in this process alone and in smaller batches"
        tqdm.write(f"warning: {reason}: the validation set is translated again {how}", file=sys.stderr)
        workers, positions = 1, max(1, positions // 2)
        device.give_back()
    # If its numbers are not finite, a sentence has no translation: training continues, with lower scores.
    decode = validation.tokenizer.decode_target
    return {pair: decode(best[0].tokens) if best else "" for pair, best in zip(pairs.tolist(), found, strict=True)}


def _greedy(
    model: Seq2Seq, device: Device, validation: ValidationSet, sentences: list[Sentence], workers: int, positions: int
) -> list[list[Hypothesis]]:
    """Search as `translate` does, with the current weights: on a CPU in fp32, whatever the precision of training."""
    if device.torch_device.type == "cpu":
        device = replace(device, dtype=torch.float32)
    pieces = validation.tokenizer.target_pieces(range(validation.tokenizer.target_vocab_size))
    engine_of = partial(TorchEngine, model, validation.max_positions, device, workers=workers, target_pieces=pieces)
    try:
        engine = engine_of(plain=not model.faster_forms)
    except TranslationError:  # the model has no form for search in this precision
        engine = engine_of(plain=True)
    limits = {"tokens_per_batch": positions, "max_extra_length": validation.max_extra_length}
    with device.autocast():
        return engine.translate(sentences, GREEDY.model_copy(update=limits), Wanted(scores=False))
