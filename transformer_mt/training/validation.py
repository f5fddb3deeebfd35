"""Measures the model on sentences that it is not trained on."""

import math
import time
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch

from transformer_mt.corpora.text_files import read_lines
from transformer_mt.data.batching import ordered_batches
from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.constraints import Constraints, max_lengths
from transformer_mt.decoding.sampling import greedy
from transformer_mt.decoding.utf8 import Utf8
from transformer_mt.device import Device
from transformer_mt.errors import CorpusError
from transformer_mt.evaluation.metrics import bleu, check_tokeniser, chrf
from transformer_mt.inference.frozen import frozen
from transformer_mt.kernels.matmul import Matmul
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.settings.corpus import CorpusConfig
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.settings.experiment import TrainingConfig
from transformer_mt.settings.model import ModelConfig
from transformer_mt.training.distributed import Ranks, whole_parameters
from transformer_mt.training.progress import Progress
from transformer_mt.training.update import Learner, batch_loss


@dataclass(frozen=True)
class ValidationSet:
    """Encoded pairs, the text of their targets in the same order, and what is needed to decode and to score them."""

    corpus: EncodedCorpus
    references: list[str]
    tokenizer: Tokenizer
    target_language: str
    max_extra_length: int
    max_positions: int
    tokens_per_batch: int


@dataclass(frozen=True)
class ValidationScores:
    nll: float
    """Nats per target token, unsmoothed."""
    bleu: float
    """BLEU of greedy translations, in percent."""
    chrf: float
    """chrF2 of the same translations."""
    seconds: float

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nll, 700.0))


def load_validation(
    data_dir: Path,
    tokenizer: Tokenizer,
    corpus: CorpusConfig,
    model: ModelConfig,
    training: TrainingConfig,
    decoding: DecodingConfig,
) -> ValidationSet:
    """Read what `prepare` wrote of the validation set. Raises CorpusError if it is not as it was written."""
    encoded = EncodedCorpus.load(data_dir / "valid")
    references = list(read_lines(data_dir / "valid.target.txt"))
    if len(references) != len(encoded):
        raise CorpusError(f"{data_dir}/valid.target.txt is not as it was written; delete {data_dir} and prepare again")
    _, language = corpus.languages_of(corpus.valid)
    check_tokeniser(language)  # better said now than at the first validation
    budget = training.tokens_per_batch
    return ValidationSet(
        encoded,
        references,
        tokenizer,
        language,
        decoding.max_extra_length,
        model.max_positions,
        max(4096, corpus.max_length) if budget == "auto" else budget,
    )


def validate(learner: Learner, validation: ValidationSet, settings: TrainingConfig, ranks: Ranks) -> ValidationScores:
    """Scores of the model that is being trained: of the moving average of its weights, where there is one."""
    learner.loss.eval()
    with learner.average.in_place_of_the_weights(), whole_parameters(learner.loss):
        scores = validate_model(learner.model, learner.device, validation, settings.valid_sentences, ranks)
    learner.loss.train()
    return scores


def validate_model(
    model: Seq2Seq, device: Device, validation: ValidationSet, valid_sentences: int, ranks: Ranks
) -> ValidationScores:
    """Teacher-forced likelihood of all pairs, and scores of the first `valid_sentences` translated greedily.

    0 of them are all. The model is in evaluation mode on the device. Each rank takes its share of the batches.
    """
    began = time.perf_counter()
    num_decoded = min(valid_sentences or len(validation.references), len(validation.references))
    mine = _validate_share(model, device, validation, num_decoded, ranks)
    shares = ranks.gather(mine)
    found = {pair: text for _, _, translations in shares for pair, text in translations.items()}
    hypotheses, references = [found[pair] for pair in range(num_decoded)], validation.references[:num_decoded]
    return ValidationScores(
        nll=sum(nll for nll, _, _ in shares) / sum(tokens for _, tokens, _ in shares),
        bleu=bleu(hypotheses, references, validation.target_language),
        chrf=chrf(hypotheses, references),
        seconds=time.perf_counter() - began,
    )


@torch.no_grad()
def _validate_share(
    model: Seq2Seq, device: Device, validation: ValidationSet, num_decoded: int, ranks: Ranks
) -> tuple[float, int, dict[int, str]]:
    """This rank's share: the sum of the nll in nats, the number of its tokens, and the translations by pair."""
    nll, tokens = 0.0, 0
    translations: dict[int, str] = {}
    # The frozen form is faster. It copies the weights as they are now, and knows no mixed precision.
    searched = frozen(model, Matmul()) if device.dtype == torch.float32 and model.faster_forms else model
    tokenizer = validation.tokenizer
    utf8 = Utf8.of(tokenizer.target_pieces(range(tokenizer.target_vocab_size)), device.torch_device)
    for batch in islice(ordered_batches(validation.corpus, validation.tokens_per_batch), ranks.rank, None, ranks.size):
        batch = batch.to(device.torch_device)
        nll += batch_loss(model, batch, 0.0, device).nll.item()
        tokens += batch.num_labels

        wanted_B = batch.pairs_B < num_decoded
        if not wanted_B.any():
            continue
        source_BS = batch.source_BS[wanted_B]
        limits = max_lengths(source_BS, validation.max_extra_length, validation.max_positions)
        constraints = Constraints(limits, utf8=utf8)
        with device.autocast():
            found = greedy(searched, source_BS, constraints, DecodingConfig(beam_size=1), scores=False)
        for pair, hypothesis in zip(batch.pairs_B[wanted_B].tolist(), found, strict=True):
            # Where the numbers are not finite there is no translation: training goes on, and its scores fall.
            translations[pair] = tokenizer.decode_target(hypothesis.tokens) if hypothesis else ""
    return nll, tokens, translations


def compare_with_best(progress: Progress, scores: ValidationScores, settings: TrainingConfig) -> Progress:
    """Progress with this validation ranked among the best so far; of equal ones, the earlier is the better."""
    metric = {"bleu": scores.bleu, "chrf": scores.chrf, "nll": -scores.nll}[settings.metric]
    metric = -math.inf if math.isnan(metric) else metric
    is_better = not progress.best or metric > progress.best[0][0]
    ranking = sorted([*progress.best, (metric, progress.step)], key=lambda entry: (-entry[0], entry[1]))
    since = 0 if is_better else progress.validations_since_best + 1
    return replace(progress, best=tuple(ranking[: settings.keep_best]), validations_since_best=since)
