"""The Transformer with options that the paper does not have: other scores, activations, positions, windows, layouts.

B sentences  W hypotheses of a sentence  S source positions  T target positions  D model width  H heads
K width of a head  F inner width
Where sentences are packed (layouts.py), their rows are one axis instead of two: x_BTD is ND, key_BHSK is HNK.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.models.attention import Attention, Memory, MultiHeadAttention, Sight
from transformer_mt.models.convolutional import LearnedPositions
from transformer_mt.models.layouts import Sentences
from transformer_mt.models.scores import attention_by, build_score
from transformer_mt.models.transformer import Cache, FeedForward, Transformer, TransformerState
from transformer_mt.settings.model_settings import TransformerConfig

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu, "swiglu": F.silu}


class VariedAttention(MultiHeadAttention):
    """Multi-head attention with any score (scores.py), and with dropout of the weights. `vary` makes it."""

    def vary(self: MultiHeadAttention, config: TransformerConfig) -> None:
        """Turn a plain attention into this class. Its weights stay."""
        self.__class__ = VariedAttention
        width = config.d_model // config.num_heads
        self.score = build_score(config.score, config.num_heads, width, width)
        self.is_scaled_dot, self.dropout = config.score.is_scaled_dot, nn.Dropout(config.attention_dropout)

    def forward(self, x_BTD: Tensor, see: Sight) -> Tensor:
        query_BHTK, key_BHTK, value_BHTK = map(self.heads, self.in_projection(x_BTD).chunk(3, dim=-1))
        return self.attend(query_BHTK, self.score.prepare(key_BHTK), value_BHTK, see)

    def memory(self, memory_BSD: Tensor, see: Sight) -> Memory:
        memory = super().memory(memory_BSD, see)
        return replace(memory, key_BHSK=self.score.prepare(memory.key_BHSK))

    def attention(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Tensor) -> Tensor:
        mixed_BHTK, weights_BHTS = attention_by(self.score, query_BHTK, key_BHSK, value_BHSK, mask)
        if self.training and self.dropout.p:
            mixed_BHTK = self.dropout(weights_BHTS) @ value_BHSK
        return mixed_BHTK


class VariedFeedForward(FeedForward):
    """The feed-forward layer with an activation that is newer than ReLU. `vary` makes it.

    gelu: x Phi(x), exactly, in place of max(0, x) (Hendrycks and Gimpel 2016). swiglu: (silu(x W1 + b1) *
    (x W3 + b3)) W2 + b2 (Shazeer 2020). With the same ffn_dim, its third matrix adds half as many parameters again;
    with 2/3 of that ffn_dim, it has as many parameters as the others.
    """

    def vary(self: FeedForward, config: TransformerConfig) -> None:
        """Turn a plain feed-forward layer into this class. Its weights stay."""
        self.__class__ = VariedFeedForward
        self.activation = config.activation
        if config.activation == "swiglu":
            factor = nn.Linear(config.d_model, config.ffn_dim)
            nn.init.xavier_uniform_(factor.weight)
            nn.init.zeros_(factor.bias)
            self.factor = factor

    def forward(self, x_BTD: Tensor) -> Tensor:
        inner_BTF = ACTIVATIONS[self.activation](self.inner(x_BTD))
        if self.activation == "swiglu":
            inner_BTF = inner_BTF * self.factor(x_BTD)
        output_BTD: Tensor = self.outer(inner_BTF)
        return output_BTD


class VariedTransformer(Transformer):
    """The Transformer with all options of its settings, for sentences in any layout."""

    def __init__(self, config: TransformerConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(config, source_vocab_size, target_vocab_size)
        for layer in (*self.encoder, *self.decoder):
            for part in layer.children():
                if isinstance(part, MultiHeadAttention) and config.why_not_packed():
                    VariedAttention.vary(part, config)
                elif isinstance(part, FeedForward) and config.activation != "relu":
                    VariedFeedForward.vary(part, config)
        if config.positions == "learned":
            self.positions = LearnedPositions(config.max_positions, config.d_model)  # type: ignore[assignment]

    def features(self, source: Tensor | Sentences, decoder_input: Tensor | Sentences) -> Tensor:
        """BTD for ids in padded rows, BS and BT; ND for sentences in another layout, the same for source and target.

        If they are packed, source sentence i and target sentence i must be a pair.
        """
        sources, target = (Sentences(ids) if isinstance(ids, Tensor) else ids for ids in (source, decoder_input))
        is_padded = sources.tokens.dim() == 2
        assert is_padded or not self.config.why_not_packed(), "other scores, and dropout of weights, need padded rows"
        see = target.backwards(self.config.attention_window)
        memories = self.memories(self.encoded(sources), target.across(sources))
        x_BTD = self.embed(self.target_embedding, target.tokens, target.encodings(self.positions))
        return self.decode(x_BTD, [see] * len(self.decoder), memories)

    def encoded(self, source: Sentences) -> Tensor:
        """The encoder's output, BSD."""
        x_BSD = self.embed(self.source_embedding, source.tokens, source.encodings(self.positions))
        return self.encode(x_BSD, source.everywhere(self.config.attention_window))

    def read(self, source_BS: Tensor) -> list[Memory]:
        source = Sentences(source_BS)
        return self.memories(self.encoded(source), source.everywhere())

    def start(self, source_BS: Tensor, width: int) -> TransformerState:
        state = super().start(source_BS, width)
        if not self.config.attention_window:
            return state
        caches: list[Cache] = [
            NearCache(each.key_BWHPK, each.value_BWHPK, self.config.attention_window) for each in state.caches
        ]
        return replace(state, caches=caches)


@dataclass
class NearCache(Cache):
    """A hypothesis sees only the newest position and `window` before it; older ones are dropped."""

    window: int

    def attend(self, query_BHWK: Tensor, key_BHWK: Tensor, value_BHWK: Tensor, attention: Attention) -> Tensor:
        self.key_BWHPK, self.value_BWHPK = (x[:, :, :, -self.window :] for x in (self.key_BWHPK, self.value_BWHPK))
        return super().attend(query_BHWK, key_BHWK, value_BHWK, attention)
