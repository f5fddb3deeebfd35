"""The Transformer: section 3 of Vaswani et al. 2017, in its order.

Section 3.2, attention, is in attention.py; sections 3.4 and 3.5 are in embeddings.py.

B sentences  W hypotheses of a sentence  S source positions  T target positions  P positions of the past
D model width  H heads  K width of a head
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.models.attention import (
    Attention,
    Memory,
    MultiHeadAttention,
    Padded,
    Sight,
    causal_mask,
    padding_mask,
)
from transformer_mt.models.embeddings import SinusoidalPositions, make_embeddings
from transformer_mt.models.interface import DecoderState, Seq2Seq
from transformer_mt.settings.model_settings import TransformerConfig


class Residual(nn.Module):
    """The connection around each sub-layer: residual sum, layer norm and dropout (sec. 3.1 and 5.4)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        # In bf16 training only products are bf16. Adding two types is slow on CPUs, so the type is converted first.
        input_BTD = self.norm(x_BTD) if self.pre_norm else x_BTD
        sum_BTD = x_BTD + self.dropout(sublayer(input_BTD)).to(x_BTD.dtype)
        output_BTD: Tensor = sum_BTD if self.pre_norm else self.norm(sum_BTD)
        return output_BTD


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (sec. 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.d_model, config.num_heads)
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
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.cross_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config)
        self.around_self_attention, self.around_cross_attention = Residual(config), Residual(config)
        self.around_feed_forward = Residual(config)

    def forward(self, x_BTD: Tensor, see: Sight, memory: Memory) -> Tensor:
        """`see` says which positions of x each position may see. In a search it is the past, to which x is added."""
        x_BTD = self.around_self_attention(x_BTD, lambda x_BTD: self.self_attention(x_BTD, see))
        x_BTD = self.around_cross_attention(x_BTD, lambda x_BTD: self.cross_attention.read(x_BTD, memory))
        x_BTD = self.around_feed_forward(x_BTD, self.feed_forward)
        return x_BTD


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 at each position (sec. 3.3)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.ffn_dim)
        self.outer = nn.Linear(config.ffn_dim, config.d_model)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        output_BTD: Tensor = self.outer(F.relu(self.inner(x_BTD)))
        return output_BTD


@dataclass
class Cache:
    """The keys and values of the past of each hypothesis, in one decoder layer: all that its next word may see."""

    key_BWHPK: Tensor
    value_BWHPK: Tensor

    def attend(self, query_BHWK: Tensor, key_BHWK: Tensor, value_BHWK: Tensor, attention: Attention) -> Tensor:
        """Add the newest position of each hypothesis to its past; returns its attention to all of these, BHWK."""
        # Each hypothesis is a row of its own, with one query.
        parts = (query_BHWK, key_BHWK, value_BHWK)
        query_BWH1K, key_BWH1K, value_BWH1K = (x.transpose(1, 2)[..., None, :] for x in parts)
        self.key_BWHPK = torch.cat([self.key_BWHPK, key_BWH1K], dim=3)
        self.value_BWHPK = torch.cat([self.value_BWHPK, value_BWH1K], dim=3)
        everything = query_BHWK.new_ones(1, dtype=torch.bool)
        return attention(query_BWH1K, self.key_BWHPK, self.value_BWHPK, everything)[..., 0, :].transpose(1, 2)

    def select(self, *index: Tensor) -> "Cache":
        """The pasts of some sentences or, with a second index, of some hypotheses of each sentence."""
        return replace(self, key_BWHPK=self.key_BWHPK[index], value_BWHPK=self.value_BWHPK[index])


@dataclass(frozen=True)
class TransformerState(DecoderState):
    """For each decoder layer, the cache of the hypotheses and the memory of their sources."""

    caches: list[Cache]
    memories: list[Memory]
    position: int = 0

    def follow(self, parent_BW: Tensor) -> "TransformerState":
        sentence_B1 = torch.arange(len(parent_BW), device=parent_BW.device)[:, None]
        return replace(self, caches=[cache.select(sentence_B1, parent_BW) for cache in self.caches])

    def keep(self, sentences: Tensor) -> "TransformerState":
        caches = [cache.select(sentences) for cache in self.caches]
        return replace(self, caches=caches, memories=[memory.select(sentences) for memory in self.memories])


def empty_cache(memory: Memory, width: int) -> Cache:
    """The cache of `width` hypotheses of each sentence, before their first word."""
    empty_BWH0K = memory.key_BHSK[:, None, :, :0].repeat(1, width, 1, 1, 1)
    return Cache(empty_BWH0K, memory.value_BHSK[:, None, :, :0].repeat(1, width, 1, 1, 1))


class Transformer(Seq2Seq):
    """The paper's encoder, decoder and embeddings. variants.py adds options that the paper does not have."""

    def __init__(self, config: TransformerConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        self.config, self.d_model = config, config.d_model
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        # With norm=pre, the last layer returns a sum to which no norm has been applied.
        last = nn.LayerNorm if config.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = last(config.d_model), last(config.d_model)
        make_embeddings(self, config, source_vocab_size, target_vocab_size)
        self.dropout = nn.Dropout(config.dropout)
        self.positions = SinusoidalPositions(config.max_positions, config.d_model)

    def features(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        x_BTD = self.embed(self.target_embedding, decoder_input_BT, self.positions.first(decoder_input_BT.shape[1]))
        see = Padded(causal_mask(decoder_input_BT.shape[1], decoder_input_BT.device))  # no word comes after PAD
        return self.decode(x_BTD, [see] * len(self.decoder), self.read(source_BS))

    def start(self, source_BS: Tensor, width: int) -> TransformerState:
        memories = self.read(source_BS)
        return TransformerState([empty_cache(memory, width) for memory in memories], memories)

    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, TransformerState]:
        assert isinstance(state, TransformerState)
        x_BWD = self.embed(self.target_embedding, token_BW, self.positions.first(state.position + 1)[-1])
        features_BWD = self.decode(x_BWD, state.caches, state.memories)
        return self.project(features_BWD), TransformerState(state.caches, state.memories, state.position + 1)

    def read(self, source_BS: Tensor) -> list[Memory]:
        """The encoder's output, as keys and values for each decoder layer."""
        see = Padded(padding_mask(source_BS))
        x_BSD = self.embed(self.source_embedding, source_BS, self.positions.first(source_BS.shape[1]))
        return self.memories(self.encode(x_BSD, see), see)

    def embed(self, embedding: nn.Embedding, tokens: Tensor, encodings: Tensor) -> Tensor:
        """Scaled embeddings plus the encodings of their positions (sec. 3.4, 3.5)."""
        summed: Tensor = self.dropout(embedding(tokens) * math.sqrt(self.d_model) + encodings)
        return summed

    def encode(self, x_BSD: Tensor, see: Sight) -> Tensor:
        for layer in self.encoder:
            x_BSD = layer(x_BSD, see)
        memory_BSD: Tensor = self.encoder_norm(x_BSD)
        return memory_BSD

    def memories(self, memory_BSD: Tensor, see: Sight) -> list[Memory]:
        return [layer.cross_attention.memory(memory_BSD, see) for layer in self.decoder_layers()]

    def decode(self, x_BTD: Tensor, sights: Sequence[Sight], memories: list[Memory]) -> Tensor:
        """`sights` has one entry for each decoder layer, because in a search each layer has its own past."""
        for layer, see, memory in zip(self.decoder, sights, memories, strict=True):
            x_BTD = layer(x_BTD, see, memory)
        features_BTD: Tensor = self.decoder_norm(x_BTD)
        return features_BTD

    def decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]
