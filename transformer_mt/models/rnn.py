"""The recurrent encoder-decoder, with attention (Bahdanau et al. 2015, Luong et al. 2015) and without.

B sentences  W hypotheses of a sentence  S source positions  T target positions  D model width  V vocabulary
C states that a recurrence carries from word to word
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transformer_mt.base.languages import PAD
from transformer_mt.models.embeddings import embeddings
from transformer_mt.models.interface import DecoderState, Seq2Seq
from transformer_mt.models.rnn_decoder import (
    BahdanauDecoder,
    BidirectionalEncoder,
    LuongDecoder,
    Past,
    RecurrentDecoder,
    SourceAttention,
)
from transformer_mt.models.scores import Annotations
from transformer_mt.settings.model_settings import RnnConfig


@dataclass(frozen=True)
class RnnState(DecoderState):
    """The past of each hypothesis. The hypotheses of a sentence share its annotations."""

    past: Past
    annotations: Annotations

    def follow(self, parent_BW: Tensor) -> "RnnState":
        sentence_B1 = torch.arange(len(parent_BW), device=parent_BW.device)[:, None]
        return replace(self, past=self.past.select(sentence_B1, parent_BW))

    def keep(self, sentences: Tensor) -> "RnnState":
        return RnnState(self.past.select(sentences), self.annotations.keep(sentences))


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
        self.target_embedding, self.source_embedding, self.output_embedding = embeddings(
            config.tied_embeddings, config.d_model, source_vocab_size, target_vocab_size
        )
        self.output_bias_V = nn.Parameter(torch.zeros(target_vocab_size)) if config.output_bias else None
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
        return RnnState(Past(carried_CBWD, zeros_BWD), self.decoder.context.annotate(source_BS, states_BSD, vector_BD))

    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, RnnState]:
        assert isinstance(state, RnnState)
        features_BW1D, state = self._steps(token_BW[..., None], state)
        return self.project(features_BW1D[:, :, 0]), state

    def attends_to_source(self) -> bool:
        """Whether it has attention (model.attention)."""
        return isinstance(self.decoder.context, SourceAttention)

    def _steps(self, token_BWT: Tensor, state: RnnState) -> tuple[Tensor, RnnState]:
        """The decoder's output after each of the next T words, BWTD, and the state that includes them."""
        x_BWTD = self._embed(self.target_embedding, token_BWT)
        output_BWTD, past = self.decoder(x_BWTD, state.annotations, state.past)
        return self.dropout(output_BWTD), replace(state, past=past)

    def _embed(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        """Scaled embeddings, as in the Transformer."""
        embedded: Tensor = self.dropout(embedding(tokens) * math.sqrt(self.d_model))
        return embedded
