"""How good the model is now, on sentences that it is not trained on."""

import math
import time
from dataclasses import dataclass

import torch

from transformer_mt.config import TrainingConfig
from transformer_mt.data.batching import ordered_batches
from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.search import greedy, max_lengths
from transformer_mt.device import Device
from transformer_mt.evaluation.metrics import bleu
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.training.update import batch_loss


@dataclass(frozen=True)
class ValidationSet:
    """Encoded pairs, the text of their targets in the same order, and what makes text of ids and scores of text."""

    corpus: EncodedCorpus
    references: list[str]
    tokenizer: Tokenizer
    target_language: str
    max_extra_length: int
    max_positions: int


@dataclass(frozen=True)
class ValidationScores:
    nll: float
    """Nats a target token, unsmoothed."""
    bleu: float
    """Of greedy translations."""
    seconds: float

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nll, 700.0))


@torch.no_grad()
def validate(model: Seq2Seq, validation: ValidationSet, settings: TrainingConfig, device: Device) -> ValidationScores:
    """Teacher-forced likelihood of all pairs, and BLEU of the first `valid_sentences` translated greedily."""
    began = time.perf_counter()
    model.eval()
    num_decoded = min(settings.valid_sentences or len(validation.references), len(validation.references))
    hypotheses = [""] * num_decoded
    nll, tokens = 0.0, 0
    for batch in ordered_batches(validation.corpus, settings.tokens_per_batch):
        batch = batch.to(device.torch_device)
        nll += batch_loss(model, batch, 0.0, device).nll.item()
        tokens += batch.num_labels

        wanted_B = batch.pairs_B < num_decoded
        source_BS = batch.source_BS[wanted_B]
        limits = max_lengths(source_BS, validation.max_extra_length, validation.max_positions)
        with device.autocast():
            found = greedy(model, source_BS, limits)
        for pair, hypothesis in zip(batch.pairs_B[wanted_B].tolist(), found, strict=True):
            hypotheses[pair] = validation.tokenizer.decode_target(hypothesis.tokens)
    model.train()
    score = bleu(hypotheses, validation.references[:num_decoded], validation.target_language)
    return ValidationScores(nll / tokens, score, time.perf_counter() - began)
