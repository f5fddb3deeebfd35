"""The convolutional encoder-decoder (Gehring et al. 2017, arXiv 1705.03122).

Because training uses Adam, two parts of the paper are left out: weight normalisation, and the division of the encoder's
gradients by the number of attentions (sec. 3.4).

B sentences  W hypotheses of a sentence  S source positions  T target positions  D model width  V vocabulary
R rows, B times W  P positions of the past that a convolution sees  L decoder layers
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.base.errors import TranslationError
from transformer_mt.models.attention import padding_mask
from transformer_mt.models.embeddings import make_embeddings
from transformer_mt.models.interface import DecoderState, Seq2Seq
from transformer_mt.models.scores import Annotations, Dot, attention_by
from transformer_mt.settings.model_settings import ConvolutionalConfig

EMBEDDED = 0.1
"""The initial standard deviation of embeddings and positions. With a larger one, scores are so large that each word
attends to a single source word from the beginning (sec. 3.5)."""

HALF_POWER = math.sqrt(0.5)
"""The factor of a sum of two terms, which gives the sum the variance of each term (sec. 3.4)."""


class LearnedPositions(nn.Module):
    """A vector for each position (sec. 3.1); compared with sinusoids by Vaswani et al. 2017, sec. 3.5."""

    def __init__(self, num_positions: int, d_model: int) -> None:
        super().__init__()
        self.table_TD = nn.Parameter(torch.empty(num_positions, d_model))
        nn.init.normal_(self.table_TD, std=d_model**-0.5)

    def first(self, num_positions: int) -> Tensor:
        """Encodings of the first positions; TD. Raises TranslationError if fewer have been learned."""
        if num_positions > len(self.table_TD):
            raise TranslationError(
                f"a sentence has {num_positions} positions, but the model has learned only "
                f"model.max_positions={len(self.table_TD)}: shorten it, or train a model with more positions"
            )
        return self.table_TD[:num_positions]


class GatedConvolution(nn.Module):
    """v([A B]) = A * sigmoid(B), where A and B are convolutions of the input (sec. 3.2; Dauphin et al. 2017)."""

    def __init__(self, width: int, kernel_width: int, dropout: float) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, 2 * width, kernel_width)
        # So that the output has the variance of the input (sec. 3.5).
        nn.init.normal_(self.convolution.weight, std=math.sqrt(4 * (1 - dropout) / (kernel_width * width)))
        assert self.convolution.bias is not None
        nn.init.zeros_(self.convolution.bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_RTD: Tensor) -> Tensor:
        """The output for each window of `kernel_width` positions: kernel_width - 1 fewer positions than x has."""
        both_RIT = self.convolution(self.dropout(x_RTD).transpose(1, 2))
        return F.glu(both_RIT, dim=1).transpose(1, 2)


class DecoderLayer(nn.Module):
    """A convolution over the words so far, then attention from each word to the source (sec. 3.3)."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.convolution = GatedConvolution(config.d_model, config.kernel_width, config.dropout)
        self.query = _linear(config.d_model)
        self.out_projection = _linear(config.d_model)
        self.score = Dot()

    def forward(
        self, x_BWTD: Tensor, past_BWPD: Tensor, embedded_BWTD: Tensor, memory: Annotations
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The output BWTD, the past for the next words, and the weights BWTS of attention.

        The query combines the convolution's output h and the word's embedding g: W h + b + g. What attention reads is
        multiplied by the square root of the number of source words, because a mean has less variance (sec. 3.4).
        """
        W, T = x_BWTD.shape[1:3]
        seen_BWID = torch.cat([past_BWPD, x_BWTD], dim=2)
        state_BWTD = self.convolution(seen_BWID.flatten(0, 1)).unflatten(0, (-1, W))
        query_BWTD = (self.query(state_BWTD) + embedded_BWTD) * HALF_POWER
        query_B1QD = query_BWTD.flatten(1, 2)[:, None]
        read_B1QD, weights_B1QS = attention_by(
            self.score, query_B1QD, memory.prepared_B1SA, memory.value_B1SD, memory.mask_B11S
        )
        root_B111 = memory.mask_B11S.sum(dim=-1, keepdim=True).to(read_B1QD.dtype).sqrt()
        read_BWTD = self.out_projection((read_B1QD * root_B111).view_as(x_BWTD))
        output_BWTD = ((state_BWTD + read_BWTD) * HALF_POWER + x_BWTD) * HALF_POWER
        return output_BWTD, seen_BWID[:, :, T:], weights_B1QS.view(len(x_BWTD), W, T, -1)


@dataclass(frozen=True)
class ConvolutionalState(DecoderState):
    """The past of each hypothesis. The hypotheses of a sentence share its memory."""

    past_LBWPD: Tensor
    """The last inputs of each layer; 0 before the first word."""
    memory: Annotations
    position: int

    def follow(self, parent_BW: Tensor) -> "ConvolutionalState":
        sentence_B1 = torch.arange(len(parent_BW), device=parent_BW.device)[:, None]
        return replace(self, past_LBWPD=self.past_LBWPD[:, sentence_B1, parent_BW])

    def keep(self, sentences: Tensor) -> "ConvolutionalState":
        past_LBWPD = self.past_LBWPD.index_select(1, sentences)
        return replace(self, past_LBWPD=past_LBWPD, memory=self.memory.keep(sentences))


class Convolutional(Seq2Seq):
    """Encoder and decoder of gated convolutions, with attention in every layer of the decoder."""

    def __init__(self, config: ConvolutionalConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        self.d_model, self.kernel_width = config.d_model, config.kernel_width
        self.encoder = nn.ModuleList(
            GatedConvolution(config.d_model, config.kernel_width, config.dropout) for _ in range(config.encoder_layers)
        )
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder_input, self.encoder_output, self.decoder_input, self.decoder_output = (
            _linear(config.d_model) for _ in range(4)
        )
        self.source_positions, self.target_positions = _positions(config), _positions(config)
        make_embeddings(self, config, source_vocab_size, target_vocab_size)
        self.dropout = nn.Dropout(config.dropout)

    def features(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        features_B1TD, _ = self._steps(decoder_input_BT[:, None], self.start(source_BS, width=1))
        return features_B1TD[:, 0]

    def start(self, source_BS: Tensor, width: int) -> ConvolutionalState:
        memory = self._encode(source_BS)
        size = (len(self.decoder), len(source_BS), width, self.kernel_width - 1, self.d_model)
        return ConvolutionalState(memory.prepared_B1SA.new_zeros(size), memory, position=0)

    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, ConvolutionalState]:
        assert isinstance(state, ConvolutionalState)
        features_BW1D, state = self._steps(token_BW[..., None], state)
        return self.project(features_BW1D[:, :, 0]), state

    def _encode(self, source_BS: Tensor) -> Annotations:
        mask_B11S = padding_mask(source_BS)
        real_BS1 = mask_B11S[:, 0, 0, :, None]
        embedded_BSD = self._embed(self.source_embedding, source_BS, self.source_positions, 0)
        x_BSD = self.encoder_input(embedded_BSD)
        side = (self.kernel_width - 1) // 2
        for convolution in self.encoder:
            # Positions before and after a sentence are 0, whether they are padding or not.
            inside_BSD = F.pad(x_BSD.masked_fill(~real_BS1, 0.0), (0, 0, side, side))
            x_BSD = (convolution(inside_BSD) + x_BSD) * HALF_POWER
        x_BSD = self.encoder_output(x_BSD)
        # The values include the embeddings, which say which word it is; x describes its surroundings (sec. 3.3).
        return Annotations(x_BSD[:, None], ((x_BSD + embedded_BSD) * HALF_POWER)[:, None], mask_B11S)

    def _steps(self, token_BWT: Tensor, state: ConvolutionalState) -> tuple[Tensor, ConvolutionalState]:
        """The decoder's output after each of the next T words, BWTD, and the state that includes them."""
        embedded_BWTD = self._embed(self.target_embedding, token_BWT, self.target_positions, state.position)
        x_BWTD, past = self.decoder_input(embedded_BWTD), []
        for layer, past_BWPD in zip(self.decoder, state.past_LBWPD, strict=True):
            x_BWTD, past_BWPD, _ = layer(x_BWTD, past_BWPD.to(x_BWTD.dtype), embedded_BWTD, state.memory)
            past.append(past_BWPD)
        x_BWTD = self.dropout(self.decoder_output(x_BWTD))
        return x_BWTD, replace(state, past_LBWPD=torch.stack(past), position=state.position + token_BWT.shape[2])

    def _embed(self, embedding: nn.Embedding, tokens: Tensor, positions: LearnedPositions, first: int) -> Tensor:
        """Scaled embeddings plus encodings from position `first` on (sec. 3.1). Raises errors of `positions.first`."""
        scale = EMBEDDED * math.sqrt(self.d_model)
        embedded: Tensor = self.dropout(embedding(tokens) * scale + positions.first(first + tokens.shape[-1])[first:])
        return embedded


def _positions(config: ConvolutionalConfig) -> LearnedPositions:
    positions = LearnedPositions(config.max_positions, config.d_model)
    nn.init.normal_(positions.table_TD, std=EMBEDDED)
    return positions


def _linear(width: int) -> nn.Linear:
    """A map that keeps the variance (sec. 3.5)."""
    linear = nn.Linear(width, width)
    nn.init.normal_(linear.weight, std=math.sqrt(1 / width))
    nn.init.zeros_(linear.bias)
    return linear
