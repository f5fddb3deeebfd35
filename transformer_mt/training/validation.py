"""How good the model is now, on sentences that it is not trained on."""

import math
import time
from dataclasses import dataclass
from itertools import islice

import torch

from transformer_mt.data.batching import ordered_batches
from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.search import greedy, max_lengths
from transformer_mt.evaluation.metrics import bleu, chrf
from transformer_mt.settings import DecodingConfig, TrainingConfig
from transformer_mt.training.distributed import Ranks, whole_parameters
from transformer_mt.training.update import Learner, batch_loss


@dataclass(frozen=True)
class ValidationSet:
    """Encoded pairs, the text of their targets in the same order, and what makes text of ids and scores of text."""

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
    """Nats a target token, unsmoothed."""
    bleu: float
    """Of greedy translations, in percent."""
    chrf: float
    """chrF2 of the same."""
    seconds: float

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nll, 700.0))


def validate(learner: Learner, validation: ValidationSet, settings: TrainingConfig, ranks: Ranks) -> ValidationScores:
    """Teacher-forced likelihood of all pairs, and scores of the first `valid_sentences` translated greedily.

    Of the moving average of the weights, where there is one. Each rank takes its share of the batches.
    """
    began = time.perf_counter()
    num_decoded = min(settings.valid_sentences or len(validation.references), len(validation.references))
    learner.loss.eval()
    with learner.average.in_place_of_the_weights(), whole_parameters(learner.loss):
        mine = _validate_share(learner, validation, num_decoded, ranks)
    learner.loss.train()
    shares = ranks.all(mine)
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
    learner: Learner, validation: ValidationSet, num_decoded: int, ranks: Ranks
) -> tuple[float, int, dict[int, str]]:
    """Of this rank's batches: the sum of the nll in nats, of how many tokens, and translations by pair."""
    model, device = learner.model, learner.device
    nll, tokens = 0.0, 0
    translations: dict[int, str] = {}
    for batch in islice(ordered_batches(validation.corpus, validation.tokens_per_batch), ranks.rank, None, ranks.size):
        batch = batch.to(device.torch_device)
        nll += batch_loss(model, batch, 0.0, device).nll.item()
        tokens += batch.num_labels

        wanted_B = batch.pairs_B < num_decoded
        if not wanted_B.any():
            continue
        source_BS = batch.source_BS[wanted_B]
        limits = max_lengths(source_BS, validation.max_extra_length, validation.max_positions)
        with device.autocast():
            found = greedy(model, source_BS, Constraints(limits), DecodingConfig(beam_size=1), scores=False)
        for pair, hypothesis in zip(batch.pairs_B[wanted_B].tolist(), found, strict=True):
            translations[pair] = validation.tokenizer.decode_target(hypothesis.tokens)
    return nll, tokens, translations
