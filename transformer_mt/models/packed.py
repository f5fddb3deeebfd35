"""Sentences without padding, for faster training: packed end to end on GPUs, and rows without PAD on CPUs.

Each equals padded rows (layout.py): the same sentences have the same features and gradients, to rounding.

N packed tokens  T positions  D model width
"""

from dataclasses import dataclass

from torch import Tensor

from transformer_mt.kernels.near_attention import Near, NearRows
from transformer_mt.kernels.packed_attention import Segments
from transformer_mt.kernels.row_attention import RowMask, Rows
from transformer_mt.models.attention import Sight, causal_mask
from transformer_mt.models.layout import Sentences
from transformer_mt.models.positions import Positions
from transformer_mt.vocabulary import PAD


@dataclass(frozen=True)
class Packed(Sentences):
    """Sentences end to end, N; sentence i is the rows offsets[i] to offsets[i + 1].

    Dummy sentences fill the rows that are left, and the last offset is repeated, so that shapes stay the same from
    batch to batch. Each sentence has at least one token, and so has its translation: attention does not write rows
    that belong to no sentence, or that see none, and what lay in memory there may be NaN.
    """

    offsets: Tensor
    """int32 [sentences + 1], from 0 to N."""
    positions_N: Tensor
    """int64: the position of each token in its sentence, from 0; in dummies any position that has an encoding."""
    max_length: int
    """No sentence is longer; a constant bound, so that one compiled graph serves all batches."""

    def encodings(self, positions: Positions) -> Tensor:
        """ND."""
        return positions.of(self.positions_N, self.max_length)

    def everywhere(self, window: int = 0) -> Segments:
        return Segments(self.offsets, self.offsets, self.max_length, self.max_length, causal=False, window=window)

    def backwards(self, window: int = 0) -> Segments:
        return Segments(self.offsets, self.offsets, self.max_length, self.max_length, causal=True, window=window)

    def across(self, source: Sentences) -> Segments:
        assert isinstance(source, Packed), "source and target lie in one way"
        return Segments(self.offsets, source.offsets, self.max_length, source.max_length, causal=False)


@dataclass(frozen=True)
class Unpadded(Sentences):
    """Padded rows without their padding, end to end, N; only attention puts it back. For training on CPUs."""

    rows: Rows

    def encodings(self, positions: Positions) -> Tensor:
        """ND."""
        length = self.rows.padding_BT.shape[1]
        return positions.first(length)[self.rows.place_N % length]

    def everywhere(self, window: int = 0) -> Sight:
        return self._near(window, causal=False) if window else self.across(self)

    def backwards(self, window: int = 0) -> Sight:
        if window:
            return self._near(window, causal=True)
        length, device = self.rows.padding_BT.shape[1], self.rows.padding_BT.device
        return RowMask.of(self.rows, self.rows, causal_mask(length, device))

    def _near(self, window: int, causal: bool) -> NearRows:
        return NearRows(self.rows, Near(~self.rows.padding_BT, window, causal))

    def across(self, source: Sentences) -> RowMask:
        assert isinstance(source, Unpadded), "source and target lie in one way"
        return RowMask.of(self.rows, source.rows, ~source.rows.padding_BT[:, None])


def unpadded(tokens_BT: Tensor) -> Unpadded:
    """The sentences of padded rows, without their padding."""
    return Unpadded(tokens_BT[tokens_BT != PAD], Rows.of(tokens_BT))
