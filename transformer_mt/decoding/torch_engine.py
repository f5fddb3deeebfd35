"""Search and forced decoding by PyTorch.

B sentences  S source positions  T target positions
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from transformer_mt.config import DecodingConfig
from transformer_mt.decoding.engine import Engine, Hypothesis, Sentence
from transformer_mt.decoding.search import beam_search, greedy, max_lengths
from transformer_mt.device import Device
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.vocabulary import BOS, EOS, PAD

SCORED_TOGETHER = 4096  # positions of a batch of pairs, padding included


class TorchEngine(Engine):
    """A model of ours on a device."""

    def __init__(self, model: Seq2Seq, max_positions: int, device: Device) -> None:
        self.model = model.to(device.torch_device).eval()
        self.max_positions, self.device = max_positions, device

    def translate(
        self,
        sentences: Sequence[Sentence],
        decoding: DecodingConfig,
        *,
        alignment: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in sentences]
        lengths = [len(sentence.source) for sentence in sentences]
        for numbers in batches(lengths, decoding.tokens_per_batch // decoding.beam_size):
            source_BS = _pad([sentences[number].source for number in numbers]).to(self.device.torch_device)
            for number, hypotheses in zip(numbers, self._search(source_BS, decoding), strict=True):
                found[number] = hypotheses
            if progress is not None:
                progress(len(numbers))
        return found

    @torch.inference_mode()
    def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        scores: list[list[float]] = [[] for _ in pairs]
        lengths = [max(len(source), len(target)) for source, target in pairs]
        for numbers in batches(lengths, SCORED_TOGETHER):
            source_BS = _pad([pairs[number][0] for number in numbers]).to(self.device.torch_device)
            target_BT = _pad([pairs[number][1] for number in numbers]).to(self.device.torch_device)
            decoder_input_BT = target_BT.masked_fill(target_BT == EOS, PAD).roll(1, dims=1)
            decoder_input_BT[:, 0] = BOS
            with self.device.autocast():
                logits_BTV = self.model(source_BS, decoder_input_BT)
            log_probs_BT = logits_BTV.float().log_softmax(dim=-1).gather(2, target_BT[..., None])[..., 0]
            for number, log_probs_T in zip(numbers, log_probs_BT.tolist(), strict=True):
                scores[number] = log_probs_T[: len(pairs[number][1])]
        return scores

    def _search(self, source_BS: Tensor, decoding: DecodingConfig) -> list[list[Hypothesis]]:
        limits = max_lengths(source_BS, decoding.max_extra_length, self.max_positions)
        alpha = decoding.length_penalty
        with self.device.autocast():
            if decoding.beam_size == 1:
                return [[hypothesis] for hypothesis in greedy(self.model, source_BS, limits, alpha)]
            return beam_search(self.model, source_BS, decoding.beam_size, alpha, limits)


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Numbers of sentences of like length, longest first, as many together as the budget of positions allows."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number], reverse=True):
        longest = lengths[batch[0]] if batch else 0
        if batch and (len(batch) + 1) * longest > budget:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _pad(sentences: list[list[int]]) -> Tensor:
    longest = max(map(len, sentences))
    return torch.tensor([ids + [PAD] * (longest - len(ids)) for ids in sentences])
