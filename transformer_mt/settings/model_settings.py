"""The settings of each architecture."""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Discriminator, Field, Tag, model_validator

from transformer_mt.settings.section import Layers, MorePositions, Positions, Section, Width

ScoreName = Literal["dot", "scaled_dot", "general", "additive", "concat"]


class ScoreChoice(NamedTuple):
    """The formula of an attention score."""

    name: ScoreName = "scaled_dot"
    scaled: bool = False
    """Whether it is divided by the square root of the keys' width. scaled_dot is so by itself."""
    biased: bool = False
    """Whether the hidden layer of additive has a bias."""

    @property
    def is_scaled_dot(self) -> bool:
        """Whether it is the score of the paper, for which there are kernels."""
        return self == SCALED_DOT


SCALED_DOT = ScoreChoice()


class _Architecture(Section):
    """What all architectures have. Those that have other defaults repeat the setting."""

    kind: str
    """The architecture: transformer, rnn or convolutional. Each has settings that the others have not."""
    encoder_layers: Layers = 6
    """The number of layers of the encoder; N in the paper."""
    decoder_layers: Layers = 6
    """The number of layers of the decoder; N in the paper."""
    d_model: Width = 512
    """The width of the embeddings and of each layer's output."""
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    """The probability of dropout on the output of each sub-layer, and on the sums of embeddings and positions. 0:
    off."""
    tied_embeddings: Literal["all", "target", "none"] = "all"
    """Which of the three embedding matrices (source, target, output) are the same matrix. all: all three, which needs
    tokenizer.joint=true; target: target and output; none: each has its own."""
    output_bias: bool = False
    """Whether the last linear map, from features to a logit for each word, has a bias: a number for each word."""
    max_positions: Positions = 1024
    """The longest sentence that the model takes, in subword pieces with the end of the sentence. Training leaves out
    longer ones (see corpus.max_length), and translation cuts longer lines into parts."""

    @property
    def attentions_to_source(self) -> int:
        """The number of decoder layers with attention to the source; one of them gives the alignment."""
        return self.decoder_layers

    def why_not_packed(self) -> str:
        """Why training.layout=packed cannot be used, as words that follow its name; empty if it can."""
        return f"needs model.kind=transformer, and this is model.kind={self.kind}"


class _WithScore(_Architecture):
    """What architectures have whose attention has a choice of scores."""

    score_key: ClassVar[str] = "attention_score"
    """The setting that names the score."""
    attention_scale: bool = False
    """Whether the attention score, whichever it is, is divided by the square root of the keys' width, as scaled_dot is
    by itself."""
    additive_bias: bool = False
    """Whether the hidden layer of the score additive has a bias: v^T tanh(W Q + U K + b)."""
    attention_window: MorePositions = 0
    """How far attention sees, in positions. A Transformer's self-attention: this many on each side in the encoder, and
    this many before the current one in the decoder; 0: no limit. The local_attention of an rnn: this many on each side
    of a place in the source; D in the paper, where it is 10."""

    @model_validator(mode="after")
    def _check_score(self) -> Self:
        name, key = getattr(self, self.score_key), self.score_key
        if self.attention_scale and name in ("scaled_dot", "none"):
            reason = "it is divided by sqrt(d_k) already" if name == "scaled_dot" else "there is no score"
            raise ValueError(
                f"attention_scale=true is not for {key}={name}, because {reason}: leave attention_scale out"
            )
        if self.additive_bias and name != "additive":
            raise ValueError(
                f"additive_bias=true is only for {key}=additive, not for {key}={name}: leave additive_bias out"
            )
        return self


class TransformerConfig(_WithScore):
    """The Transformer of Vaswani et al. 2017; the defaults are its base model (table 3)."""

    kind: Literal["transformer"] = "transformer"
    """The architecture. model.kind=rnn and model.kind=convolutional have other settings."""
    ffn_dim: int = Field(default=2048, gt=0, le=1_000_000)
    """The inner width of a feed-forward layer, between its linear maps."""
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    """The activation function of a feed-forward layer. swiglu (Shazeer 2020) has a third linear map, so with the same
    ffn_dim the layer has 1.5 times the parameters."""
    num_heads: Width = 8
    """The number of heads of each attention. Each head is d_model / num_heads wide."""
    attention_score: ScoreName = "scaled_dot"
    """The formula of the attention score, in every attention. scaled_dot: Q K^T / sqrt(d_k), as in the paper; dot:
    Q K^T; general: Q W K^T (Luong et al. 2015); additive: v^T tanh(W Q + U K) (Bahdanau et al. 2015); concat:
    w^T [Q; K]. All except scaled_dot take more time and memory."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """How positions are encoded. sinusoidal: by the paper's sine and cosine waves; learned: by a vector for each
    position that is trained with the model."""
    norm: Literal["post", "pre"] = "post"
    """Where layer normalisation stands. post: after each residual sum, as in the paper; pre: before each sub-layer, and
    once more at the end."""
    attention_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """The probability of dropout on the attention weights. 0: off, as in the paper."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.d_model % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} does not divide d_model={self.d_model}: each head is d_model / num_heads "
                "wide, so change one of them"
            )
        if self.d_model % 2 and self.positions == "sinusoidal":
            raise ValueError(
                f"d_model={self.d_model} is odd, but sinusoids come in pairs, a sine and a cosine: set an even "
                "d_model, or positions=learned"
            )
        return self

    @property
    def score(self) -> ScoreChoice:
        """The formula of the score in every attention. A dot product that is scaled is scaled_dot."""
        if self.attention_score == "dot" and self.attention_scale:
            return SCALED_DOT
        return ScoreChoice(self.attention_score, self.attention_scale, self.additive_bias)

    def why_not_packed(self) -> str:
        """Why training.layout=packed cannot be used, as words that follow its name; empty if it can."""
        if self.attention_dropout:
            return "does not support model.attention_dropout"
        if not self.score.is_scaled_dot:
            return f"does not support model.attention_score={self.attention_score}"
        return ""


class RnnConfig(_WithScore):
    """The recurrent encoder-decoder, with attention (Bahdanau et al. 2015, Luong et al. 2015) or without."""

    score_key: ClassVar[str] = "attention"
    kind: Literal["rnn"]
    """The architecture. model.kind=transformer and model.kind=convolutional have other settings."""
    cell: Literal["gru", "lstm", "rnn"] = "gru"
    """The kind of recurrent cell. gru: gated recurrent units (Cho et al. 2014); lstm: long short-term memory
    (Hochreiter and Schmidhuber 1997); rnn: the plain one, without gates, h = tanh(W x + U h' + b) (Elman 1990)."""
    encoder_layers: Layers = 1
    """The number of layers of the encoder. Each has two directions, and each direction is d_model / 2 wide."""
    decoder_layers: Layers = 1
    """The number of layers of the decoder. Each is d_model wide."""
    d_model: Width = 512
    """The width of the embeddings, of the encoder's two directions together, and of the decoder."""
    attention: Literal["none", ScoreName, "location", "fixed_concat"] = "additive"
    """How the decoder reads the source. dot, scaled_dot, general, additive, concat: by attention with that score, as in
    the Transformer's attention_score; location: a linear map from the query gives one score for each of max_positions
    positions, whatever stands there (Luong et al. 2015, eq. 8); fixed_concat: the same from the query and the last
    encoder state; none: the decoder sees only one vector for the whole source."""
    local_attention: Literal["none", "monotonic", "predictive"] = "none"
    """Whether each word sees only a window of the source (Luong et al. 2015, sec. 3.2). none: all of it; monotonic:
    around the position of the word itself (local-m); predictive: around a position that the model predicts, and less
    with the distance from it (local-p)."""
    decoder: Literal["luong", "bahdanau"] = "luong"
    """Where attention stands in a step of the decoder. luong: after the recurrence, with its new state as the query
    (Luong et al. 2015); bahdanau: before it, with the old state (Bahdanau et al. 2015)."""
    input_feeding: bool = True
    """Whether a luong decoder gets its previous attentional vector as part of its input (Luong et al. 2015, sec. 3.3).
    A bahdanau decoder always has the context there."""
    dropout: float = Field(default=0.2, ge=0.0, lt=1.0)
    """The probability of dropout on the embeddings, between layers, and on the output of the decoder. 0: off."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.d_model % 2:
            raise ValueError(
                f"d_model={self.d_model} is odd, but the encoder has two directions, each half as wide: set an even "
                "d_model"
            )
        if self.attention == "none" and self.local_attention != "none":
            raise ValueError(
                f"local_attention={self.local_attention} needs attention, and attention=none has none: choose another "
                "attention, or leave local_attention out"
            )
        if (self.local_attention == "none") != (self.attention_window == 0):
            raise ValueError(
                f"local_attention={self.local_attention} does not go with attention_window={self.attention_window}: "
                "a window needs local_attention=monotonic or predictive, and those need a window, such as 10"
            )
        if self.decoder == "bahdanau" and not self.input_feeding:
            raise ValueError(
                "input_feeding=false is only for decoder=luong, because bahdanau's decoder has the context as its "
                "input: leave input_feeding out, or set decoder=luong"
            )
        return self

    @property
    def attentions_to_source(self) -> int:
        """The number of decoder layers with attention to the source; one of them gives the alignment."""
        return 0 if self.attention == "none" else 1


class ConvolutionalConfig(_Architecture):
    """The convolutional encoder-decoder (Gehring et al. 2017)."""

    kind: Literal["convolutional"]
    """The architecture. model.kind=transformer and model.kind=rnn have other settings."""
    encoder_layers: Layers = 8
    """The number of convolutions of the encoder, each of which sees kernel_width outputs of the one before."""
    decoder_layers: Layers = 8
    """The number of layers of the decoder. Each has a convolution and attention to the source."""
    kernel_width: int = Field(default=3, ge=3, le=1001)
    """How many positions a convolution sees: in the encoder, as many on each side of a word as on the other; in the
    decoder, the word and those before it."""
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    """The probability of dropout on the embeddings, on the input of each convolution, and on the output of the
    decoder. 0: off."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kernel_width % 2 == 0:
            raise ValueError(
                f"kernel_width={self.kernel_width} is even, but the encoder sees as many words on the left as on the "
                "right: set an odd one"
            )
        return self


def _kind(values: Any) -> str:
    """Return the kind of a model section, given as the values read from a file or as a section."""
    return str(values.get("kind", "transformer") if isinstance(values, dict) else getattr(values, "kind", ""))


ModelConfig = Annotated[
    Annotated[TransformerConfig, Tag("transformer")]
    | Annotated[RnnConfig, Tag("rnn")]
    | Annotated[ConvolutionalConfig, Tag("convolutional")],
    Discriminator(
        _kind,
        custom_error_type="kind",
        custom_error_message="it must be transformer, rnn or convolutional",
    ),
]
"""One of the architectures, by its `kind`."""
