"""The settings of each architecture."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from transformer_mt.settings.bounds import Layers, MorePositions, Positions, Width

ScoreName = Literal["dot", "scaled_dot", "general", "additive", "concat"]


class Section(BaseModel):
    """Frozen; unknown keys and values of another type are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        serialize_by_alias=True,  # tokenizer.from is a word of Python, and its field has another name
    )


def keys_of(section: type[BaseModel]) -> list[str]:
    """The keys of a section as a configuration file names them."""
    return [field.alias or name for name, field in section.model_fields.items()]


class TransformerConfig(Section):
    """The Transformer of Vaswani et al. 2017; the defaults are its base model (table 3)."""

    kind: Literal["transformer"] = "transformer"
    """The architecture; rnn has other settings."""
    encoder_layers: Layers = 6
    """Layers of the encoder; N in the paper."""
    decoder_layers: Layers = 6
    """Layers of the decoder; N in the paper."""
    d_model: Width = 512
    """Width of embeddings and of each layer's output."""
    ffn_dim: int = Field(default=2048, gt=0, le=1_000_000)
    """Width between the linear maps of a feed-forward layer."""
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    """Between the linear maps of a feed-forward layer. swiglu has a third map, so half as many parameters more
    there at the same ffn_dim (Shazeer 2020)."""
    num_heads: Width = 8
    """Heads of each attention, each d_model / num_heads wide."""
    attention_score: ScoreName = "scaled_dot"
    """How well a query and a key go together, in every attention: Q K^T / sqrt(d_k), as in the paper; dot: Q K^T;
    general: Q W K^T (Luong et al. 2015); additive: v^T tanh(W Q + U K) (Bahdanau et al. 2015); concat: w^T [Q; K].
    All but the first take more time and memory."""
    attention_window: MorePositions = 0
    """In self-attention a position sees only this many others on each side (in the decoder: before it); 0: no limit."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Encodings of positions: the paper's sinusoids, or a vector for each position that is learned."""
    norm: Literal["post", "pre"] = "post"
    """Layer norm after each residual sum, as in the paper; or before each sub-layer and once at the end."""
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    """On the output of each sub-layer and on the sums of embeddings and positions."""
    attention_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """On attention weights; the paper has none."""
    tied_embeddings: Literal["all", "target", "none"] = "all"
    """One matrix for source, target and output; for target and output; or three."""
    max_positions: Positions = 1024
    """Subword pieces. Training has none with longer sentences; translating cuts a longer line into parts."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.d_model % self.num_heads:
            raise ValueError(f"num_heads={self.num_heads} does not divide d_model={self.d_model}")
        if self.d_model % 2 and self.positions == "sinusoidal":
            raise ValueError(f"d_model={self.d_model} is odd, but sinusoids come in pairs")
        return self

    @property
    def attentions_to_source(self) -> int:
        """Layers of attention to the source, of which one says the alignment."""
        return self.decoder_layers

    def why_not_packed(self) -> str:
        """What forbids training.layout=packed; empty if nothing does."""
        if self.attention_dropout:
            return "has no model.attention_dropout"
        if self.attention_score != "scaled_dot":
            return f"has no model.attention_score={self.attention_score}"
        return ""


class RnnConfig(Section):
    """The recurrent encoder-decoder, with attention (Bahdanau et al. 2015, Luong et al. 2015) and without."""

    kind: Literal["rnn"]
    """The architecture; transformer has other settings."""
    cell: Literal["gru", "lstm"] = "gru"
    """Gated recurrent units (Cho et al. 2014), or long short-term memory (Hochreiter and Schmidhuber 1997)."""
    encoder_layers: Layers = 1
    """Layers of the encoder; each has two directions, half of d_model wide."""
    decoder_layers: Layers = 1
    """Layers of the decoder, d_model wide."""
    d_model: Width = 512
    """Width of embeddings, of the encoder's two directions together, and of the decoder."""
    attention: Literal["none", ScoreName, "fixed_concat"] = "additive"
    """How the decoder reads the source: scores as in the Transformer's attention_score; fixed_concat: a linear map
    from the query and the last state of the encoder to one weight a position, of max_positions; none: all of the
    source through one vector."""
    decoder: Literal["luong", "bahdanau"] = "luong"
    """Whether attention comes after the recurrence, from its new state (Luong et al. 2015), or before it, from its
    old one (Bahdanau et al. 2015)."""
    input_feeding: bool = True
    """luong's decoder gets its last attentional vector as a part of its input (Luong et al. 2015, sec. 3.3).
    bahdanau's always has the context there."""
    dropout: float = Field(default=0.2, ge=0.0, lt=1.0)
    """On embeddings, between layers, and on the output of the decoder."""
    tied_embeddings: Literal["all", "target", "none"] = "all"
    """One matrix for source, target and output; for target and output; or three."""
    max_positions: Positions = 1024
    """Subword pieces. Training has none with longer sentences; translating cuts a longer line into parts."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} is odd, but the encoder has two directions, each half as wide")
        if self.decoder == "bahdanau" and not self.input_feeding:
            raise ValueError(
                "input_feeding=false is luong's alone: bahdanau's decoder has the context as its input; "
                "leave input_feeding out, or set decoder=luong"
            )
        return self

    @property
    def attentions_to_source(self) -> int:
        """Layers of attention to the source, of which one says the alignment."""
        return 0 if self.attention == "none" else 1

    def why_not_packed(self) -> str:
        """What forbids training.layout=packed: a recurrence goes through rows."""
        return "is for the Transformer; model.kind=rnn has rows"


def _kind(values: Any) -> str:
    """Of settings as they are read, or made already."""
    return str(values.get("kind", "transformer") if isinstance(values, dict) else getattr(values, "kind", ""))


ModelConfig = Annotated[
    Annotated[TransformerConfig, Tag("transformer")] | Annotated[RnnConfig, Tag("rnn")],
    Discriminator(
        _kind,
        custom_error_type="kind",
        custom_error_message="it must be transformer or rnn",
    ),
]
"""One of the architectures, by its `kind`."""
