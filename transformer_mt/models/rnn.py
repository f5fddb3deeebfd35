"""The recurrent encoder-decoder, with attention (Bahdanau et al. 2015, Luong et al. 2015) and without.

B sentences  W hypotheses of a sentence  S source positions  T target positions  R rows  Q W times T  D model width
V vocabulary  I width of inputs
C states carried from word to word: one for each layer; for LSTM all hidden states, then all cells
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_mt.base.languages import PAD
from transformer_mt.models.attention import padding_mask
from transformer_mt.models.embeddings import make_embeddings
from transformer_mt.models.interface import DecoderState, Seq2Seq
from transformer_mt.models.scores import Annotations, FixedConcat, Location, Scaled, Score, attention_by, build_score
from transformer_mt.settings.model_settings import RnnConfig, ScoreChoice

Cell = Literal["gru", "lstm", "rnn"]


class BidirectionalEncoder(nn.Module):
    """Recurrences of half the width from both ends (Schuster and Paliwal 1997; Bahdanau et al. 2015, sec. 3.2)."""

    def __init__(self, cell: Cell, num_layers: int, width: int, dropout: float) -> None:
        super().__init__()
        self.cells = _cells(cell, num_layers, width, width // 2, dropout, bidirectional=True)

    def forward(self, x_BSD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """The states of both directions at each position, BSD, 0 at padding; and the last of each direction, BD."""
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

    def forward(self, x_BWTI: Tensor, carried_CBWD: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer's states at the next T positions, BWTD, and the carried states after them."""
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
    """Turn oneDNN off for bf16 on CPUs without AVX-512: it has no recurrences there, but PyTorch would call them."""
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
    """Recurrent layers with dropout between them.

    Initial weights of each gate (a plain recurrence has one map): input weights by Glorot and Bengio 2010, orthogonal
    recurrent weights (Saxe et al. 2014, also in Bahdanau et al.). Biases are 0, except that of the forget gate, which
    is 1 (Jozefowicz et al. 2015).
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


class SourceWindow(nn.Module):
    """The positions p - D to p + D of the source around a centre p. Positions count from 1, as in the paper.

    Monotonic (local-m): p_t = t, or the last word where the source is shorter. Predictive (local-p):
    p_t = S sigmoid(v^T tanh(W h_t)), where S is the length of the source (eq. 9).
    """

    def __init__(self, width: int, half_width: int, *, predicts: bool) -> None:
        super().__init__()
        self.half_width, self.predicts = half_width, predicts
        if predicts:
            self.inner, self.to_centre = (nn.Linear(width, to, bias=False) for to in (width, 1))
            for linear in (self.inner, self.to_centre):
                nn.init.xavier_uniform_(linear.weight)

    def centre(self, query_BWTD: Tensor, position: int, mask_B11S: Tensor) -> Tensor:
        """p of each query, BWT. The first query belongs to the word at `position`, counted from 0."""
        B, W, T, _ = query_BWTD.shape
        length_B11 = mask_B11S.sum(dim=-1)
        if self.predicts:
            share_BWT: Tensor = self.to_centre(self.inner(query_BWTD).tanh())[..., 0].sigmoid()
            return length_B11 * share_BWT
        word_T = torch.arange(position + 1, position + T + 1, device=query_BWTD.device)
        return word_T.minimum(length_B11).expand(B, W, T)


class SourceAttention(nn.Module):
    """Attention of each query to the encoder's states, to all of them or only to a window."""

    def __init__(self, score: Score, window: SourceWindow | None) -> None:
        super().__init__()
        self.score, self.window = score, window

    def annotate(self, source_BS: Tensor, states_BSD: Tensor, vector_BD: Tensor) -> Annotations:
        """Prepare the encoder's states once for all queries. They are keys and values."""
        mask_B11S = padding_mask(source_BS)
        key_BSD = states_BSD
        if self.score.reads_last_key:  # must be a word, not padding
            last_B = mask_B11S.sum(dim=-1).flatten() - 1
            row_B = torch.arange(len(last_B), device=last_B.device)
            key_BSD = states_BSD[row_B, last_B][:, None].expand_as(states_BSD)
        return Annotations(self.score.prepare(key_BSD[:, None]), states_BSD[:, None], mask_B11S)

    def forward(self, query_BWTD: Tensor, annotations: Annotations, position: int) -> tuple[Tensor, Tensor]:
        """The context of each query, BWTD, and its weights BWTS. The first query is for word `position`, from 0."""
        W, T = query_BWTD.shape[1:3]
        mask = annotations.mask_B11S
        if self.window:
            centre_B1Q = self.window.centre(query_BWTD, position, mask).flatten(1)[:, None]
            place_S = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
            distance_B1QS = place_S - centre_B1Q[..., None]  # s - p
            mask = mask & (distance_B1QS.abs() <= self.window.half_width)
        query_B1QD = query_BWTD.flatten(1, 2)[:, None]
        prepared_B1SA, value_B1SD = annotations.prepared_B1SA, annotations.value_B1SD
        context_B1QD, weights_B1QS = attention_by(self.score, query_B1QD, prepared_B1SA, value_B1SD, mask)
        if self.window and self.window.predicts:
            sigma = self.window.half_width / 2
            weights_B1QS = weights_B1QS * (-distance_B1QS.square() / (2 * sigma**2)).exp()  # eq. 10
            context_B1QD = weights_B1QS @ annotations.value_B1SD
        context_BWTD = context_B1QD.view_as(query_BWTD).to(query_BWTD.dtype)
        return context_BWTD, weights_B1QS.view(len(weights_B1QS), W, T, -1)


class FixedVector(nn.Module):
    """No attention: the context is the same vector for every query (Cho et al. 2014)."""

    def annotate(self, source_BS: Tensor, states_BSD: Tensor, vector_BD: Tensor) -> Annotations:
        """A single position, which holds the vector; the decoder sees nothing else of the source."""
        vector_B11D = vector_BD[:, None, None]
        return Annotations(vector_B11D, vector_B11D, torch.ones_like(vector_B11D[..., 0], dtype=torch.bool)[..., None])

    def forward(self, query_BWTD: Tensor, annotations: Annotations, position: int) -> tuple[Tensor, Tensor]:
        """The vector for each query, BWTD, and its weight of 1, BWT1."""
        return annotations.value_B1SD.expand_as(query_BWTD), torch.ones_like(query_BWTD[..., :1])


def build_context(config: RnnConfig) -> SourceAttention | FixedVector:
    """How the decoder reads the source."""
    width, window = config.d_model, None
    if config.local_attention != "none":
        window = SourceWindow(width, config.attention_window, predicts=config.local_attention == "predictive")
    match config.attention:
        case "none":
            return FixedVector()
        case "location":
            score: Score = Location(width, config.max_positions)
        case "fixed_concat":
            score = FixedConcat(width, width, config.max_positions)
        case name:
            choice = ScoreChoice(name, config.attention_scale, config.additive_bias)
            return SourceAttention(build_score(choice, 1, width, width), window)
    return SourceAttention(Scaled(score, width) if config.attention_scale else score, window)


@dataclass(frozen=True)
class RnnState(DecoderState):
    """The state of each hypothesis before its next word. The hypotheses of a sentence share its annotations."""

    annotations: Annotations
    carried_CBWD: Tensor
    output_BWD: Tensor
    """Luong's attentional vector of the previous word, for input feeding; 0 before the first word."""
    position: int = 0
    """The number of words so far."""

    def follow(self, parent_BW: Tensor) -> "RnnState":
        sentence_B1 = torch.arange(len(parent_BW), device=parent_BW.device)[:, None]
        carried_CBWD, output_BWD = self.carried_CBWD[:, sentence_B1, parent_BW], self.output_BWD[sentence_B1, parent_BW]
        return replace(self, carried_CBWD=carried_CBWD, output_BWD=output_BWD)

    def keep(self, sentences: Tensor) -> "RnnState":
        carried_CBWD, output_BWD = self.carried_CBWD[:, sentences], self.output_BWD[sentences]
        return RnnState(self.annotations.keep(sentences), carried_CBWD, output_BWD, self.position)


class RecurrentDecoder(nn.Module, ABC):
    """The same code serves teacher forcing (one hypothesis, T words) and search (W hypotheses, one word)."""

    def __init__(self, config: RnnConfig, input_width: int) -> None:
        super().__init__()
        self.context = build_context(config)
        self.recurrence = Recurrence(config.cell, config.decoder_layers, input_width, config.d_model, config.dropout)

    @abstractmethod
    def forward(self, x_BWTD: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
        """The output after each of the next T words, BWTD, and the state that includes them."""


class LuongDecoder(RecurrentDecoder):
    """Attention comes after the recurrence, from its new state s: s~ = tanh(W_c [c; s]) (Luong et al. 2015, eq. 5).

    With input feeding, the recurrence reads [y; s~ of the previous word] (sec. 3.3), so it takes one word after the
    other. Otherwise it reads [y] and takes all words at once.
    """

    def __init__(self, config: RnnConfig) -> None:
        super().__init__(config, input_width=config.d_model * (2 if config.input_feeding else 1))
        self.input_feeding = config.input_feeding
        self.combine = _glorot(nn.Linear(2 * config.d_model, config.d_model))

    def forward(self, x_BWTD: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
        if not self.input_feeding:
            return self._outputs(x_BWTD, state)
        outputs = []
        for x_BW1D in torch.split(x_BWTD, 1, dim=2):
            output_BW1D, state = self._outputs(torch.cat([x_BW1D, state.output_BWD[:, :, None]], dim=-1), state)
            outputs.append(output_BW1D)
        return torch.cat(outputs, dim=2), state

    def _outputs(self, input_BWTI: Tensor, before: RnnState) -> tuple[Tensor, RnnState]:
        state_BWTD, carried_CBWD = self.recurrence(input_BWTI, before.carried_CBWD)
        context_BWTD, _ = self.context(state_BWTD, before.annotations, before.position)
        output_BWTD = self.combine(torch.cat([context_BWTD, state_BWTD], dim=-1)).to(state_BWTD.dtype).tanh()
        position = before.position + output_BWTD.shape[2]
        return output_BWTD, RnnState(before.annotations, carried_CBWD, output_BWTD[:, :, -1], position)


class BahdanauDecoder(RecurrentDecoder):
    """Attention comes before the recurrence and uses the previous state; the recurrence reads [y; c] (Bahdanau et al.
    2015, appendix A.1.2 and A.2.2).

    Then t~ = U_o s + V_o y + C_o c, and the output is the larger of each pair of neighbours in t~ (maxout). s is the
    new state, as in eq. 4; the appendix has the previous state there.
    """

    def __init__(self, config: RnnConfig) -> None:
        super().__init__(config, input_width=2 * config.d_model)
        self.readout = _glorot(nn.Linear(3 * config.d_model, 2 * config.d_model))

    def forward(self, x_BWTD: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
        states, contexts, carried_CBWD = [], [], state.carried_CBWD
        for position, x_BW1D in enumerate(torch.split(x_BWTD, 1, dim=2), start=state.position):
            query_BW1D = carried_CBWD[self.recurrence.cells.num_layers - 1][:, :, None]  # the last layer's hidden state
            context_BW1D, _ = self.context(query_BW1D, state.annotations, position)
            state_BW1D, carried_CBWD = self.recurrence(torch.cat([x_BW1D, context_BW1D], dim=-1), carried_CBWD)
            states.append(state_BW1D)
            contexts.append(context_BW1D)
        read_BWTI = torch.cat([torch.cat(states, dim=2), x_BWTD, torch.cat(contexts, dim=2)], dim=-1)
        pairs_BWTD2 = self.readout(read_BWTI).unflatten(-1, (-1, 2))
        state = replace(state, carried_CBWD=carried_CBWD, position=state.position + x_BWTD.shape[2])
        return pairs_BWTD2.amax(dim=-1), state


def _glorot(linear: nn.Linear) -> nn.Linear:
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


class Rnn(Seq2Seq):
    """A bidirectional encoder, a decoder, and their embeddings."""

    def __init__(self, config: RnnConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        self.d_model = config.d_model
        self.encoder = BidirectionalEncoder(config.cell, config.encoder_layers, config.d_model, config.dropout)
        luong = config.decoder == "luong"
        self.decoder: RecurrentDecoder = LuongDecoder(config) if luong else BahdanauDecoder(config)
        # It makes the decoder's initial states and cells.
        self.bridge = nn.Linear(config.d_model, self.decoder.recurrence.num_carried * config.d_model)
        for weight_DD in torch.split(self.bridge.weight, config.d_model):
            nn.init.xavier_uniform_(weight_DD)
        nn.init.zeros_(self.bridge.bias)
        make_embeddings(self, config, source_vocab_size, target_vocab_size)
        self.dropout = nn.Dropout(config.dropout)

    def features(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        features_B1TD, _ = self._steps(decoder_input_BT[:, None], self.start(source_BS, width=1))
        return features_B1TD[:, 0]

    def start(self, source_BS: Tensor, width: int) -> RnnState:
        lengths_B = (source_BS != PAD).sum(dim=1)
        states_BSD, vector_BD = self.encoder(self._embed(self.source_embedding, source_BS), lengths_B)
        # tanh(W [last forward; first backward]); Bahdanau et al. take only the second half (appendix A.2.2).
        carried_BCD = self.bridge(vector_BD).to(vector_BD.dtype).tanh().unflatten(-1, (-1, self.d_model))
        carried_CBWD = carried_BCD.transpose(0, 1)[:, :, None].expand(-1, -1, width, -1)
        zeros_BWD = vector_BD.new_zeros(len(source_BS), width, self.d_model)
        return RnnState(self.decoder.context.annotate(source_BS, states_BSD, vector_BD), carried_CBWD, zeros_BWD)

    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, RnnState]:
        assert isinstance(state, RnnState)
        features_BW1D, state = self._steps(token_BW[..., None], state)
        return self.project(features_BW1D[:, :, 0]), state

    def attends_to_source(self) -> bool:
        """Whether it has attention (model.attention)."""
        return isinstance(self.decoder.context, SourceAttention)

    def _steps(self, token_BWT: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
        """The decoder's output after each of the next T words, BWTD, and the state that includes them."""
        output_BWTD, state = self.decoder(self._embed(self.target_embedding, token_BWT), state)
        return self.dropout(output_BWTD), state

    def _embed(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        """Scaled embeddings, as in the Transformer."""
        embedded: Tensor = self.dropout(embedding(tokens) * math.sqrt(self.d_model))
        return embedded
