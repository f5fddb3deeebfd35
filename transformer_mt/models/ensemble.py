"""Several models with one vocabulary, which translate together as one model.

B sentences  W hypotheses of a sentence  S source positions  T target positions
M models  D their widths together  V vocabulary
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.models.interface import DecoderState, Seq2Seq


@dataclass(frozen=True)
class EnsembleState(DecoderState):
    """The states of all models, which have seen the same words."""

    states: tuple[DecoderState, ...]

    def follow(self, parent_BW: Tensor) -> "EnsembleState":
        return EnsembleState(tuple(state.follow(parent_BW) for state in self.states))

    def keep(self, sentences: Tensor) -> "EnsembleState":
        return EnsembleState(tuple(state.keep(sentences) for state in self.states))


class Ensemble(Seq2Seq):
    """The mean of the models' probabilities at each position. It cannot be trained."""

    def __init__(self, models: list[Seq2Seq]) -> None:
        super().__init__()
        sizes = {model.output_VD.shape[0] for model in models}
        assert len(sizes) == 1, "one vocabulary"
        self.models = nn.ModuleList(models)

        self.faster_forms = models[0].faster_forms

    def features(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        """The features of all models, side by side."""
        return torch.cat([model.features(source_BS, decoder_input_BT) for model in self.members()], dim=-1)

    def project(self, features: Tensor) -> Tensor:
        widths = [model.output_VD.shape[1] for model in self.members()]
        apart = features.split_with_sizes(widths, dim=-1)
        return _combined([model.project(own) for model, own in zip(self.members(), apart, strict=True)])

    def start(self, source_BS: Tensor, width: int) -> EnsembleState:
        return EnsembleState(tuple(model.start(source_BS, width) for model in self.members()))

    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, EnsembleState]:
        assert isinstance(state, EnsembleState)
        steps = [model.step(token_BW, own) for model, own in zip(self.members(), state.states, strict=True)]
        return _combined([logits_BWV for logits_BWV, _ in steps]), EnsembleState(tuple(own for _, own in steps))

    def members(self) -> list[Seq2Seq]:
        return [model for model in self.models if isinstance(model, Seq2Seq)]


def _combined(logits: list[Tensor]) -> Tensor:
    """The logarithm of the mean of the models' probabilities, [..., V]; at least in fp32."""
    logits_MV = torch.stack(logits)
    precise = torch.promote_types(logits_MV.dtype, torch.float32)
    return logits_MV.log_softmax(dim=-1, dtype=precise).logsumexp(dim=0) - math.log(len(logits))
