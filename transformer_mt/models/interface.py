"""What training and search ask of an architecture: four verbs, and a state to search on from.

B sentences  W hypotheses of a sentence  S source positions  T target positions  D model width  V vocabulary
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from torch import Tensor, nn
from torch.nn import functional as F

Function = TypeVar("Function", bound=Callable[..., Any])


class DecoderState(ABC):
    """What the decoder has seen of B sources and of W hypotheses of each."""

    @abstractmethod
    def follow(self, parent_BW: Tensor) -> Self:
        """The state in which hypothesis w of sentence b goes on from hypothesis parent_BW[b, w].

        There may be more hypotheses, or fewer, than before.
        """

    @abstractmethod
    def keep(self, sentences: Tensor) -> Self:
        """The state of only these sentences, by index and in that order."""


class Seq2Seq(nn.Module, ABC):
    """An encoder-decoder. Source sentences end in EOS; targets begin with BOS; PAD on the right of both."""

    output_embedding: nn.Embedding
    output_bias_V: Tensor | None
    faster_forms: Mapping[str, Callable[..., Any]] = {}  # see inference/fast.py

    @abstractmethod
    def features(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        """Teacher forcing: the decoder's output at each position, before the vocabulary; BTD."""

    @property
    def output_VD(self) -> Tensor:
        """The last linear map, from features to one logit a word."""
        return self.output_embedding.weight

    def project(self, features: Tensor) -> Tensor:
        """Logits [..., V] of features [..., D]."""
        return F.linear(features, self.output_VD, self.output_bias_V)

    def forward(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        """Logits of the next word at each position, all positions at once; BTV."""
        return self.project(self.features(source_BS, decoder_input_BT))

    @abstractmethod
    def start(self, source_BS: Tensor, width: int) -> DecoderState:
        """Read the sources, once; the state of `width` empty hypotheses of each. May use up states of before."""

    @abstractmethod
    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Logits BWV of the word after `token_BW`, and the state that has seen it. Uses up `state`."""

    def faster(self, function: Function) -> Function:
        """The form in which this model computes a function: itself, or what inference/fast.py has exchanged it for."""
        return self.faster_forms.get(function.__name__, function)  # type: ignore[return-value]
