"""Recurrences: gated recurrent units (Cho et al. 2014), long short-term memory (Hochreiter and Schmidhuber 1997), and
the plain one (Elman 1990).

B sentences  W hypotheses of a sentence  S source positions  T target positions  R rows  D width  I width of inputs
C what is carried from word to word: a state for each layer; of LSTM the hidden states, then the cells
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

Cell = Literal["gru", "lstm", "rnn"]


class BidirectionalEncoder(nn.Module):
    """A recurrence from left to right and another from right to left, each of half the width (Schuster and Paliwal
    1997; Bahdanau et al. 2015, sec. 3.2)."""

    def __init__(self, cell: Cell, num_layers: int, width: int, dropout: float) -> None:
        super().__init__()
        self.cells = _cells(cell, num_layers, width, width // 2, dropout, bidirectional=True)

    def forward(self, x_BSD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """The states of both directions at each position, BSD, 0 at padding; and their last ones, BD.

        The last from left to right is that of the last real word, the last from right to left that of the first.
        """
        packed = pack_padded_sequence(x_BSD, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
        with _onednn_if_able():
            packed_states, last = self.cells(packed)
        states_BSD, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=x_BSD.shape[1])
        hidden_CBK = last[0] if isinstance(self.cells, nn.LSTM) else last
        return states_BSD, torch.cat([hidden_CBK[-2], hidden_CBK[-1]], dim=-1)


class Recurrence(nn.Module):
    """Layers of cells that read from left to right."""

    def __init__(self, cell: Cell, num_layers: int, input_width: int, width: int, dropout: float) -> None:
        super().__init__()
        self.cells = _cells(cell, num_layers, input_width, width, dropout)
        self.num_carried = num_layers * (2 if cell == "lstm" else 1)
        self.top = num_layers - 1
        """Among what is carried, the hidden state of the last layer."""

    def forward(self, x_BWTI: Tensor, carried_CBWD: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer's states at T positions more, BWTD, and what is carried after them."""
        B, W, T, _ = x_BWTI.shape
        x_RTI, carried_CRD = x_BWTI.flatten(0, 1), carried_CBWD.flatten(1, 2)
        if isinstance(self.cells, nn.LSTM):
            hidden_LRD, memory_LRD = carried_CRD.chunk(2)
            with _onednn_if_able():
                state_RTD, carried = self.cells(x_RTI, (hidden_LRD.contiguous(), memory_LRD.contiguous()))
            carried_CRD = torch.cat(carried)
        else:
            state_RTD, carried_CRD = self.cells(x_RTI, carried_CRD.contiguous())
        return state_RTD.view(B, W, T, -1), carried_CRD.view(-1, B, W, state_RTD.shape[-1])


@contextmanager
def _onednn_if_able() -> Iterator[None]:
    """Turn oneDNN off where it has no recurrences in bf16: without AVX-512 it has none, but PyTorch asks for them."""
    onednn = torch.backends.mkldnn
    before, in_bf16 = onednn.enabled, torch.is_autocast_enabled("cpu")
    if in_bf16 and onednn.is_available() and not torch.ops.mkldnn._is_mkldnn_bf16_supported():  # type: ignore[no-untyped-call]
        onednn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        onednn.enabled = before


def _cells(
    cell: Cell, num_layers: int, input_width: int, width: int, dropout: float, bidirectional: bool = False
) -> nn.GRU | nn.LSTM | nn.RNN:
    """With dropout between layers.

    For each gate, or for the only map of a plain recurrence: input weights of Glorot and Bengio 2010, orthogonal
    recurrent weights (Saxe et al. 2014; so did Bahdanau et al.). Biases are 0 but that of the forget gate, which is 1
    (Jozefowicz et al. 2015).
    """
    make: dict[Cell, type[nn.GRU | nn.LSTM | nn.RNN]] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
    cells = make[cell](
        input_width,
        width,
        num_layers,
        batch_first=True,
        dropout=dropout if num_layers > 1 else 0.0,
        bidirectional=bidirectional,
    )
    for name, parameter in cells.named_parameters():
        gates = torch.split(parameter.data, width)
        for gate in gates:
            if name.startswith("weight_ih"):
                nn.init.xavier_uniform_(gate)
            elif name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            else:
                nn.init.zeros_(gate)
        if cell == "lstm" and name.startswith("bias_ih"):
            nn.init.ones_(gates[1])  # input, forget, new, output
    return cells
