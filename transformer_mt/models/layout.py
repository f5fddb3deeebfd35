"""How sentences lie in a tensor. Linear layers, norms and dropout do not care; positions and attention ask here.

Usually they lie in padded rows. packed.py has two other ways, without padding, for faster training.

B sentences  S source positions  T positions  D model width
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from transformer_mt.kernels.fast_attention import Mask
from transformer_mt.models.attention import causal_mask, padding_mask, window_mask
from transformer_mt.models.positions import Positions


@dataclass(frozen=True)
class Sentences(ABC):
    """Sentences that lie in one tensor: where each word stands, and which words it may see."""

    tokens: Tensor
    """Ids, int64."""

    @abstractmethod
    def encodings(self, positions: Positions) -> Tensor:
        """The encodings of the words' positions, which are added to their embeddings."""

    @abstractmethod
    def everywhere(self, window: int = 0) -> Mask:
        """Each word may see its whole sentence; if `window` is not 0, only this many positions on each side."""

    @abstractmethod
    def backwards(self, window: int = 0) -> Mask:
        """Each word may see itself and the words before it; if `window` is not 0, only this many of them."""

    @abstractmethod
    def across(self, source: "Sentences") -> Mask:
        """Each word may see the whole source sentence. Both sides have to lie in the same way."""


@dataclass(frozen=True)
class Padded(Sentences):
    """One sentence in each row, BT, with PAD on its right."""

    def encodings(self, positions: Positions) -> Tensor:
        """TD, the same for all rows."""
        return positions.first(self.tokens.shape[1])

    def everywhere(self, window: int = 0) -> Tensor:
        """B11T, or B1TT with a window."""
        mask_B11T = padding_mask(self.tokens)
        return window_mask(mask_B11T, window) if window else mask_B11T

    def backwards(self, window: int = 0) -> Tensor:
        """TT. Padding needs no mask here: it stands behind all words, and nothing is made of what it sees."""
        return causal_mask(self.tokens.shape[1], self.tokens.device, window)

    def across(self, source: Sentences) -> Tensor:
        """B11S."""
        assert isinstance(source, Padded), "source and target lie in one way"
        return source.everywhere()


def laid_out(sentences: Tensor | Sentences) -> Sentences:
    """The sentences as they lie; a tensor of ids, BT, has padded rows."""
    return Padded(sentences) if isinstance(sentences, Tensor) else sentences
