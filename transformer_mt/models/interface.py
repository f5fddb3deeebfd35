"""The interface of every architecture: what training and search call, and the decoder's state in a search.

B sentences  W hypotheses of a sentence  S source positions  T target positions  D model width  V vocabulary
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from torch import Tensor, nn
from torch.nn import functional as F

Function = TypeVar("Function", bound=Callable[..., Any])


class DecoderState(ABC):
    """What the decoder has read: B sources, and W hypotheses of each."""

    @abstractmethod
    def follow(self, parent_BW: Tensor) -> Self:
        """The state in which hypothesis w of sentence b continues hypothesis parent_BW[b, w].

        It may have more or fewer hypotheses than before.
        """

    @abstractmethod
    def keep(self, sentences: Tensor) -> Self:
        """The state of only the sentences with these indices, in this order."""


class Seq2Seq(nn.Module, ABC):
    """An encoder-decoder. Sources end in EOS, decoder inputs begin with BOS, and PAD fills both on the right."""

    source_embedding: nn.Embedding
    target_embedding: nn.Embedding
    output_embedding: nn.Embedding
    output_bias_V: Tensor | None
    faster_forms: Mapping[str, Callable[..., Any]] = {}  # see inference/fast.py

    @abstractmethod
    def features(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        """Teacher forcing: the decoder's output BTD at each target position, before the map to the vocabulary."""

    @property
    def output_VD(self) -> Tensor:
        """The matrix of the last linear map, from features to one logit for each word."""
        return self.output_embedding.weight

    def project(self, features: Tensor) -> Tensor:
        """Logits [..., V] of features [..., D]."""
        return F.linear(features, self.output_VD, self.output_bias_V)

    def forward(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        """Logits BTV of the next word at each position, computed for all positions at once."""
        return self.project(self.features(source_BS, decoder_input_BT))

    @abstractmethod
    def start(self, source_BS: Tensor, width: int) -> DecoderState:
        """Read the sources once; returns a state of `width` empty hypotheses of each. May invalidate earlier states."""

    @abstractmethod
    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Logits BWV of the word after `token_BW`, and the state that includes `token_BW`. Invalidates `state`."""

    def faster(self, function: Function) -> Function:
        """The faster form of a function that inference/fast.py chose for this model, or else the function itself."""
        return self.faster_forms.get(function.__name__, function)  # type: ignore[return-value]
