"""How sentences lie in a tensor: in padded rows, packed end to end, or in rows whose padding is left out.

Linear layers, norms and dropout do not care; position encodings and attention ask here.

B sentences  T positions  N packed tokens  D model width
"""

from dataclasses import dataclass

from torch import Tensor

from transformer_mt.kernels.packed_attention import Segments
from transformer_mt.kernels.row_attention import RowMask, Rows
from transformer_mt.models.attention import causal_mask, padding_mask, window_mask
from transformer_mt.models.positions import Positions
from transformer_mt.vocabulary import PAD


@dataclass(frozen=True)
class Padded:
    """A sentence a row, PAD on its right."""

    tokens: Tensor
    """int64 BT."""

    def encodings(self, positions: Positions) -> Tensor:
        """What is added to the embeddings; TD."""
        return positions.first(self.tokens.shape[1])

    def everywhere(self, window: int = 0) -> Tensor:
        """Each word may see all of its sentence, B11T, or so many positions on each side, B1TT."""
        mask_B11T = padding_mask(self.tokens)
        return window_mask(mask_B11T, window) if window else mask_B11T

    def backwards(self, window: int = 0) -> Tensor:
        """Each word may see itself and what is before it, or so many positions of that; TT."""
        return causal_mask(self.tokens.shape[1], self.tokens.device, window)

    def across(self, source: "Layout") -> Tensor:
        """Each word may see all of the source sentence; B11S."""
        assert isinstance(source, Padded), "source and target lie in one way"
        return source.everywhere()


@dataclass(frozen=True)
class Packed:
    """Sentences end to end; sentence i is the rows offsets[i] to offsets[i + 1].

    So that nothing changes shape from batch to batch, dummy sentences fill the rows that are left, and the
    last offset is repeated. Each sentence has a token at least, and its translation too: attention leaves
    rows that are of no sentence, or that see none, as it found them in memory, which may be NaN.
    """

    tokens: Tensor
    """int64 N."""
    offsets: Tensor
    """int32 [sentences + 1], from 0 to N."""
    positions_N: Tensor
    """int64: of each token in its sentence, from 0; anything that has an encoding in dummies."""
    max_length: int
    """No sentence is longer; a constant bound, so that one compiled graph serves all batches."""

    def encodings(self, positions: Positions) -> Tensor:
        """What is added to the embeddings; ND."""
        return positions.of(self.positions_N, self.max_length)

    def everywhere(self, window: int = 0) -> Segments:
        """Each word may see all of its sentence, or so many positions on each side."""
        return Segments(self.offsets, self.offsets, self.max_length, self.max_length, causal=False, window=window)

    def backwards(self, window: int = 0) -> Segments:
        """Each word may see itself and what is before it, or so many positions of that."""
        return Segments(self.offsets, self.offsets, self.max_length, self.max_length, causal=True, window=window)

    def across(self, source: "Layout") -> Segments:
        """Each word may see all of the source sentence."""
        assert isinstance(source, Packed), "source and target lie in one way"
        return Segments(self.offsets, source.offsets, self.max_length, source.max_length, causal=False)


@dataclass(frozen=True)
class Unpadded:
    """Padded rows without their padding, end to end; attention alone puts it back. For training on CPUs."""

    tokens: Tensor
    """int64 N."""
    rows: Rows

    def encodings(self, positions: Positions) -> Tensor:
        """What is added to the embeddings; ND."""
        length = self.rows.padding_BT.shape[1]
        return positions.first(length)[self.rows.place_N % length]

    def everywhere(self, window: int = 0) -> RowMask:
        """Each word may see all of its sentence, or so many positions on each side."""
        if not window:
            return self.across(self)
        mask_B1TT = window_mask(~self.rows.padding_BT[:, None, None], window)
        return RowMask.of(self.rows, self.rows, mask_B1TT[:, 0])

    def backwards(self, window: int = 0) -> RowMask:
        """Each word may see itself and what is before it, or so many positions of that."""
        length, device = self.rows.padding_BT.shape[1], self.rows.padding_BT.device
        return RowMask.of(self.rows, self.rows, causal_mask(length, device, window))

    def across(self, source: "Layout") -> RowMask:
        """Each word may see all of the source sentence."""
        assert isinstance(source, Unpadded), "source and target lie in one way"
        return RowMask.of(self.rows, source.rows, ~source.rows.padding_BT[:, None])


def unpadded(tokens_BT: Tensor) -> Unpadded:
    """Without the padding of these rows."""
    return Unpadded(tokens_BT[tokens_BT != PAD], Rows.of(tokens_BT))


Layout = Padded | Packed | Unpadded


def laid_out(sentences: "Tensor | Packed | Unpadded") -> Layout:
    """Ids alone, BT, are padded rows."""
    return Padded(sentences) if isinstance(sentences, Tensor) else sentences
