"""How sentences lie in a tensor. Linear layers, norms and dropout do not care; positions and attention ask here.

B sentences  S source positions  T positions  D model width
"""

from dataclasses import dataclass

from torch import Tensor

from transformer_mt.kernels.near_attention import Near
from transformer_mt.models.attention import Padded, Sight, causal_mask, padding_mask
from transformer_mt.models.positions import Positions
from transformer_mt.vocabulary import PAD


@dataclass(frozen=True)
class Sentences:
    """One sentence in each row, with PAD on its right. Other layouts, for faster training, are in packed.py."""

    tokens: Tensor
    """int64 BT."""

    def encodings(self, positions: Positions) -> Tensor:
        """The encodings of the words' positions, which are added to their embeddings; TD."""
        return positions.first(self.tokens.shape[1])

    def everywhere(self, window: int = 0) -> Sight:
        """Each word may see its whole sentence, or only `window` positions on each side."""
        return Near(self.tokens != PAD, window, causal=False) if window else Padded(padding_mask(self.tokens))

    def backwards(self, window: int = 0) -> Sight:
        """Each word may see itself and the words before it, or only `window` of them. No word stands after PAD."""
        if window:
            return Near(self.tokens != PAD, window, causal=True)
        return Padded(causal_mask(self.tokens.shape[1], self.tokens.device))

    def across(self, source: "Sentences") -> Sight:
        """Each word may see the whole source sentence. Both sides have to lie in the same way."""
        assert type(source) is type(self), "source and target lie in one way"
        return source.everywhere()


class Whole(Sentences):
    """The same, with the whole mask of a window: the weights of attention are those of all pairs of positions."""

    def everywhere(self, window: int = 0) -> Padded:
        return _whole(super().everywhere(window))

    def backwards(self, window: int = 0) -> Padded:
        return _whole(super().backwards(window))


def _whole(see: Sight) -> Padded:
    if isinstance(see, Near):
        return Padded(see.whole())
    assert isinstance(see, Padded), "the rows are padded"
    return see


def laid_out(sentences: Tensor | Sentences, takes_unpadded: bool) -> Sentences:
    """The sentences as they lie; a tensor of ids, BT, has padded rows. Not all models take others."""
    lie = Sentences(sentences) if isinstance(sentences, Tensor) else sentences
    assert lie.tokens.dim() == 2 or takes_unpadded, "other scores, and dropout of the weights, need padded rows"
    return lie
