"""The Transformer: section 3 of Vaswani et al. 2017, in its order.

Section 3.2, attention, is in attention.py and multi_head.py, 3.4 in embeddings.py and 3.5 in positions.py.

B sentences  W hypotheses of a sentence  S source positions  T target positions
D model width  H heads  K width of a head  F inner width  V vocabulary  L layers
Where sentences are packed (packed.py), their rows are one axis instead of two: x_BTD is ND, key_BHSK is HNK.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.models.attention import Sight
from transformer_mt.models.attention_weights import AttentionWeights
from transformer_mt.models.cache import TransformerState
from transformer_mt.models.embeddings import embeddings
from transformer_mt.models.interface import DecoderState, Seq2Seq
from transformer_mt.models.layout import Sentences, Whole, laid_out
from transformer_mt.models.multi_head import Memory, MultiHeadAttention, recorded
from transformer_mt.models.positions import LearnedPositions, Positions, SinusoidalPositions
from transformer_mt.settings.model import TransformerConfig


class Residual(nn.Module):
    """The connection around each sub-layer: residual sum, layer norm and dropout (sec. 3.1 and 5.4)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        # In bf16 only products are bf16. A sum of two types is slow on CPUs: hence the type is changed before it.
        if self.pre_norm:
            y_BTD: Tensor = x_BTD + self.dropout(sublayer(self.norm(x_BTD))).to(x_BTD.dtype)
        else:
            y_BTD = self.norm(x_BTD + self.dropout(sublayer(x_BTD)).to(x_BTD.dtype))
        return y_BTD


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (sec. 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = _attention(config)
        self.feed_forward = FeedForward(config)
        self.around_attention, self.around_feed_forward = Residual(config), Residual(config)

    def forward(self, x_BSD: Tensor, see: Sight) -> Tensor:
        x_BSD = self.around_attention(x_BSD, lambda x_BSD: self.attention(x_BSD, see))
        x_BSD = self.around_feed_forward(x_BSD, self.feed_forward)
        return x_BSD


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward (sec. 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.cross_attention = _attention(config)
        self.feed_forward = FeedForward(config)
        self.around_self_attention, self.around_cross_attention = Residual(config), Residual(config)
        self.around_feed_forward = Residual(config)

    def forward(self, x_BTD: Tensor, see: Sight, memory: Memory) -> Tensor:
        """`see` is what each position may see of all of x; or, in a search, the past, which x is added to."""
        x_BTD = self.around_self_attention(x_BTD, lambda x_BTD: self.self_attention(x_BTD, see))
        x_BTD = self.around_cross_attention(x_BTD, lambda x_BTD: self.cross_attention.read(x_BTD, memory))
        x_BTD = self.around_feed_forward(x_BTD, self.feed_forward)
        return x_BTD


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 at each position (sec. 3.3), or what came after it.

    gelu: x Phi(x), exactly, in place of max(0, x) (Hendrycks and Gimpel 2016). swiglu: (silu(x W1 + b1) *
    (x W3 + b3)) W2 + b2 (Shazeer 2020). Its third matrix makes it half as large again at the same ffn_dim;
    2/3 of ffn_dim have the parameters of the others.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.inner = nn.Linear(config.d_model, config.ffn_dim)
        self.outer = nn.Linear(config.ffn_dim, config.d_model)
        if config.activation == "swiglu":
            self.factor = nn.Linear(config.d_model, config.ffn_dim)
        for linear in (module for module in self.children() if isinstance(module, nn.Linear)):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        match self.activation:
            case "relu":
                inner_BTF = F.relu(self.inner(x_BTD))
            case "gelu":
                inner_BTF = F.gelu(self.inner(x_BTD))
            case "swiglu":
                inner_BTF = F.silu(self.inner(x_BTD)) * self.factor(x_BTD)
            case _:
                assert_never(self.activation)
        output_BTD: Tensor = self.outer(inner_BTF)
        return output_BTD


def _attention(config: TransformerConfig) -> MultiHeadAttention:
    return MultiHeadAttention(config.d_model, config.num_heads, config.attention_dropout, config.score)


class Transformer(Seq2Seq):
    """Encoder, decoder, embeddings."""

    def __init__(self, config: TransformerConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.d_model, self.num_heads, self.score = config.d_model, config.num_heads, config.score
        self.attention_dropout, self.attention_window = config.attention_dropout, config.attention_window
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        # With the norm inside the residuals nothing has normalised their sum at the end.
        last = nn.LayerNorm if config.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = last(config.d_model), last(config.d_model)
        self.target_embedding, self.source_embedding, self.output_embedding = embeddings(
            config.tied_embeddings, config.d_model, source_vocab_size, target_vocab_size
        )
        self.output_bias_V = nn.Parameter(torch.zeros(target_vocab_size)) if config.output_bias else None
        self.dropout = nn.Dropout(config.dropout)
        make = LearnedPositions if config.positions == "learned" else SinusoidalPositions
        self.positions: Positions = make(config.max_positions, config.d_model)

    def features(self, source: Tensor | Sentences, decoder_input: Tensor | Sentences) -> Tensor:
        sources, targets = (laid_out(side, self.takes_unpadded) for side in (source, decoder_input))
        return self._decode(targets, self._encode(sources), sources)

    def _encode(self, source: Sentences) -> Tensor:
        see = source.everywhere(self.attention_window)
        x_BSD = self._embed(self.source_embedding, source.tokens, source.encodings(self.positions))
        for layer in self.encoder:
            x_BSD = layer(x_BSD, see)
        memory_BSD: Tensor = self.encoder_norm(x_BSD)
        return memory_BSD

    def _decode(self, target: Sentences, memory_BSD: Tensor, source: Sentences) -> Tensor:
        see = target.backwards(self.attention_window)
        x_BTD = self._embed(self.target_embedding, target.tokens, target.encodings(self.positions))
        for layer, memory in zip(self.decoder, self.memories(memory_BSD, target.across(source)), strict=True):
            x_BTD = layer(x_BTD, see, memory)
        features_BTD: Tensor = self.decoder_norm(x_BTD)
        return features_BTD

    def _embed(self, embedding: nn.Embedding, tokens: Tensor, encodings: Tensor) -> Tensor:
        """Scaled embeddings plus the encodings of their positions (sec. 3.4, 3.5)."""
        summed: Tensor = self.dropout(embedding(tokens) * math.sqrt(self.d_model) + encodings)
        return summed

    def memories(self, memory_BSD: Tensor, see: Sight) -> list[Memory]:
        return [layer.cross_attention.memory(memory_BSD, see) for layer in self.decoder_layers()]

    @property
    def takes_unpadded(self) -> bool:
        return self.attention_dropout == 0.0 and self.score.is_scaled_dot

    @property
    def output_VD(self) -> Tensor:
        return self.output_embedding.weight

    @property
    def units(self) -> list[nn.Module]:
        # The attention of a decoder layer is used outside of the layer too: for the keys of the encoder's output.
        return [*self.encoder, *(layer.feed_forward for layer in self.decoder_layers())]

    def start(self, source_BS: Tensor, width: int) -> TransformerState:
        source = Sentences(source_BS)
        memories = self.memories(self._encode(source), source.everywhere())
        return TransformerState.empty(memories, width, self.attention_window)

    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, TransformerState]:
        assert isinstance(state, TransformerState)
        position_D = self.positions.first(state.position + 1)[-1]
        x_BWD = self._embed(self.target_embedding, token_BW, position_D)
        for layer, cache, memory in zip(self.decoder_layers(), state.caches, state.memories, strict=True):
            x_BWD = layer(x_BWD, cache, memory)
        return self.project(self.decoder_norm(x_BWD)), replace(state, position=state.position + 1)

    def attention_to_source(self, source_BS: Tensor, decoder_input_BT: Tensor, layer: int) -> Tensor:
        return self.attention_weights(source_BS, decoder_input_BT).heads("cross", layer).mean(dim=1)

    def attention_weights(self, source_BS: Tensor, decoder_input_BT: Tensor) -> AttentionWeights:
        with (
            recorded([layer.attention for layer in self.encoder_layers()]) as encoder,
            recorded([layer.self_attention for layer in self.decoder_layers()]) as decoder,
            recorded([layer.cross_attention for layer in self.decoder_layers()]) as cross,
        ):
            self.features(Whole(source_BS), Whole(decoder_input_BT))
        return AttentionWeights(torch.stack(encoder), torch.stack(decoder), torch.stack(cross))

    def encoder_layers(self) -> list[EncoderLayer]:
        return [layer for layer in self.encoder if isinstance(layer, EncoderLayer)]

    def decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]
