"""Encodings of the position of a word in its sentence.

T positions  D model width
"""

import torch
from torch import Tensor, nn

from transformer_mt.errors import TooLongError


def sinusoidal(num_positions: int, d_model: int) -> Tensor:
    """Position encodings TD in fp32 (Vaswani et al. 2017, sec. 3.5), from position 0.

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos(the same): interleaved as in the
    paper. tensor2tensor and fairseq put all sines before all cosines, a permutation of the columns.
    """
    # In fp64: an angle of a thousand radians has few digits left after the point in fp32.
    position_T1 = torch.arange(num_positions, dtype=torch.float64)[:, None]
    exponent_I = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    angle_TI = position_T1 / 10000.0**exponent_I
    return torch.stack([angle_TI.sin(), angle_TI.cos()], dim=-1).flatten(1).float()


class SinusoidalPositions(nn.Module):
    """The paper's encodings, for sentences of any length."""

    def __init__(self, num_positions: int, d_model: int) -> None:
        """Make the encodings of the first `num_positions`; more are made when a sentence has more."""
        super().__init__()
        self.table_TD: Tensor
        self.register_buffer("table_TD", sinusoidal(num_positions, d_model), persistent=False)

    def first(self, num_positions: int) -> Tensor:
        """Encodings of the first positions; TD."""
        if num_positions > len(self.table_TD):
            self.table_TD = sinusoidal(num_positions, self.table_TD.shape[1]).to(self.table_TD)
        return self.table_TD[:num_positions]

    def of(self, position_N: Tensor, bound: int) -> Tensor:
        """Encodings of these positions, all of them below the bound; ND."""
        return self.first(bound)[position_N]


class LearnedPositions(nn.Module):
    """A vector for each position, as in Gehring et al. 2017 (sec. 3.1); compared in sec. 3.5 of the paper."""

    def __init__(self, num_positions: int, d_model: int) -> None:
        super().__init__()
        self.table_TD = nn.Parameter(torch.empty(num_positions, d_model))
        nn.init.normal_(self.table_TD, std=d_model**-0.5)

    def first(self, num_positions: int) -> Tensor:
        """Encodings of the first positions; TD. Raises TooLongError if fewer have been learned."""
        if num_positions > len(self.table_TD):
            raise TooLongError(
                f"a sentence of {num_positions} positions, and model.positions=learned knows "
                f"model.max_positions={len(self.table_TD)}: shorten it, or train a model of more positions, or with "
                "model.positions=sinusoidal"
            )
        return self.table_TD[:num_positions]

    def of(self, position_N: Tensor, bound: int) -> Tensor:
        """Encodings of these positions, ND; the bound may be beyond what was learned, as long as they are not."""
        return self.table_TD[position_N]


Positions = SinusoidalPositions | LearnedPositions
