"""The layouts of sentences in a tensor: rows with padding or, for speed, sentences without padding.

`Packed` (for GPUs) and `Unpadded` (for CPUs) give the same features and gradients as padded rows, up to rounding. Only
positions and attention depend on the layout; linear layers, norms and dropout do not.

B sentences  N packed tokens  T positions  D model width
"""

from dataclasses import dataclass

from torch import Tensor

from transformer_mt.base.languages import PAD
from transformer_mt.kernels.packed_attention import Near, RowMask, Rows, Segments
from transformer_mt.models.attention import Padded, Sight, causal_mask, padding_mask
from transformer_mt.models.convolutional import LearnedPositions
from transformer_mt.models.embeddings import SinusoidalPositions

Positions = SinusoidalPositions | LearnedPositions


@dataclass(frozen=True)
class Sentences:
    """One sentence in each row, with PAD on its right."""

    tokens: Tensor
    """int64 BT."""

    def encodings(self, positions: Positions) -> Tensor:
        """The encodings of the words' positions, which are added to their embeddings; TD."""
        return positions.first(self.tokens.shape[1])

    def everywhere(self, window: int = 0) -> Sight:
        """Each word may see its whole sentence, or only `window` positions on each side."""
        return Near(self.tokens != PAD, window, causal=False) if window else Padded(padding_mask(self.tokens))

    def backwards(self, window: int = 0) -> Sight:
        """Each word may see itself and the words before it, or only `window` of them. No word comes after PAD."""
        if window:
            return Near(self.tokens != PAD, window, causal=True)
        return Padded(causal_mask(self.tokens.shape[1], self.tokens.device))

    def across(self, source: "Sentences") -> Sight:
        """Each word may see the whole source sentence. Both sides must have the same layout."""
        assert type(source) is type(self), "source and target have one layout"
        return source.everywhere()


def whole_mask(see: Sight) -> Tensor:
    """True where a query of padded rows may see a key; broadcasts to BHTS."""
    assert isinstance(see, Near | Padded), "the rows are padded"
    return see.whole() if isinstance(see, Near) else see.mask


@dataclass(frozen=True)
class Packed(Sentences):
    """Sentences end to end, N; sentence i has the rows offsets[i] to offsets[i + 1].

    Dummy sentences fill the remaining rows, and the last offset is repeated, so that all batches have the same shapes.
    Each sentence and its translation need at least one token: attention does not write rows that belong to no sentence
    or see none, so that they may hold NaN.
    """

    offsets: Tensor
    """int32 [sentences + 1], from 0 to N."""
    positions_N: Tensor
    """int64: the position of each token in its sentence, from 0; in dummies any position that has an encoding."""
    max_length: int
    """The greatest length of a sentence: a constant bound, so that one compiled graph serves all batches."""

    def encodings(self, positions: Positions) -> Tensor:
        """ND."""
        if isinstance(positions, SinusoidalPositions):
            positions.first(self.max_length)  # makes the table long enough
        return positions.table_TD[self.positions_N]

    def everywhere(self, window: int = 0) -> Segments:
        return Segments(self.offsets, self.offsets, self.max_length, self.max_length, causal=False, window=window)

    def backwards(self, window: int = 0) -> Segments:
        return Segments(self.offsets, self.offsets, self.max_length, self.max_length, causal=True, window=window)

    def across(self, source: Sentences) -> Segments:
        assert isinstance(source, Packed), "source and target have one layout"
        return Segments(self.offsets, source.offsets, self.max_length, source.max_length, causal=False)


@dataclass(frozen=True)
class Unpadded(Sentences):
    """The tokens of padded rows end to end, N, without padding, which only attention restores. For training on CPUs."""

    rows: Rows

    def encodings(self, positions: Positions) -> Tensor:
        """ND."""
        length = self.rows.padding_BT.shape[1]
        return positions.first(length)[self.rows.place_N % length]

    def everywhere(self, window: int = 0) -> Sight:
        assert not window, "a window needs padded rows"
        return self.across(self)

    def backwards(self, window: int = 0) -> Sight:
        assert not window, "a window needs padded rows"
        length, device = self.rows.padding_BT.shape[1], self.rows.padding_BT.device
        return RowMask.of(self.rows, self.rows, causal_mask(length, device))

    def across(self, source: Sentences) -> RowMask:
        assert isinstance(source, Unpadded), "source and target have one layout"
        return RowMask.of(self.rows, source.rows, ~source.rows.padding_BT[:, None])


def unpadded(tokens_BT: Tensor) -> Unpadded:
    """The sentences of padded rows, without their padding."""
    return Unpadded(tokens_BT[tokens_BT != PAD], Rows.of(tokens_BT))
