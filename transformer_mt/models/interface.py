"""What training and search ask of an architecture: four verbs and a state.

B sentences  W hypotheses of a sentence  S source positions  T target positions
D model width  V vocabulary
"""

from abc import ABC, abstractmethod
from typing import Self

from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.models.attention_weights import AttentionWeights
from transformer_mt.models.layout import Sentences


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

    is_fast = False  # whether its parts were exchanged for faster ones (inference/fast.py)
    output_bias_V: Tensor | None  # what the last linear map adds to the logit of each word, if model.output_bias is set

    @abstractmethod
    def features(self, source: Tensor | Sentences, decoder_input: Tensor | Sentences) -> Tensor:
        """Teacher forcing: the decoder's output at each position, before the vocabulary; BTD, or packed ND.

        Ids in padded rows, BS and BT; or both packed, sentence i of the one beside sentence i of the other; or
        both unpadded, if the model takes that.
        """

    @property
    def takes_unpadded(self) -> bool:
        """Whether `features` can leave out the padding of rows."""
        return False

    @property
    @abstractmethod
    def output_VD(self) -> Tensor:
        """The last linear map, from features to one logit a word."""

    @property
    def units(self) -> list[nn.Module]:
        """Parts whose own `forward` runs once a pass: sharded training gathers their parameters one at a time."""
        return []

    def project(self, features: Tensor) -> Tensor:
        """Logits [..., V] of features [..., D]; apart, so that the loss can take them in chunks."""
        return F.linear(features, self.output_VD, self.output_bias_V)

    def forward(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        """Logits of the next word at each position, all positions at once; BTV."""
        return self.project(self.features(source_BS, decoder_input_BT))

    @property
    def attends_to_source(self) -> bool:
        """Whether there is attention to the source: without, `attention_to_source` raises TranslationError."""
        return True

    @abstractmethod
    def attention_to_source(self, source_BS: Tensor, decoder_input_BT: Tensor, layer: int) -> Tensor:
        """Teacher forcing: how much each target position looked at each source position; BTS.

        Rows sum to one; those of predictive local attention to less.
        In a decoder layer: 1 is the lowest, 0 the last but one (Garg et al. 2019), or the only one.
        """

    def attention_weights(self, source_BS: Tensor, decoder_input_BT: Tensor) -> AttentionWeights:
        """Teacher forcing: the weights of every attention, by layer and head; here of the one to the source."""
        return AttentionWeights.to_source(self.attention_to_source(source_BS, decoder_input_BT, layer=0)[None, :, None])

    @abstractmethod
    def start(self, source_BS: Tensor, width: int) -> DecoderState:
        """Read the sources, once; the state of `width` empty hypotheses of each. May use up states of before."""

    @abstractmethod
    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Logits BWV of the word after `token_BW`, and the state that has seen it. Uses up `state`."""
