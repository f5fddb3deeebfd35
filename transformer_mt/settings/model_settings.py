"""The settings of each architecture."""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Discriminator, Field, Tag, model_validator

from transformer_mt.settings.section import Layers, MorePositions, Positions, Section, Width

ScoreName = Literal["dot", "scaled_dot", "general", "additive", "concat"]


class ScoreChoice(NamedTuple):
    """The formula of an attention score."""

    name: ScoreName = "scaled_dot"
    scaled: bool = False
    """Whether the score is divided by the square root of the keys' width. scaled_dot always is, also with False."""
    biased: bool = False
    """Whether the hidden layer of additive has a bias."""

    @property
    def is_scaled_dot(self) -> bool:
        """Whether this is the score of the paper, for which there are kernels."""
        return self == SCALED_DOT


SCALED_DOT = ScoreChoice()


class _Architecture(Section):
    """The settings of all architectures. An architecture with another default repeats the setting."""

    kind: str
    """The architecture: transformer, rnn or convolutional. Each also has settings of its own."""
    encoder_layers: Layers = 6
    """The number of layers of the encoder; N in the paper."""
    decoder_layers: Layers = 6
    """The number of layers of the decoder; N in the paper."""
    d_model: Width = 512
    """The width of the embeddings and of each layer's output."""
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    """The probability of dropout on the output of each sub-layer, and on the sums of embeddings and positional
    encodings. 0: off."""
    tied_embeddings: Literal["all", "target", "none"] = "all"
    """Which of the three embedding matrices (source, target, output) are the same matrix. all: all three, which needs
    tokenizer.joint=true; target: target and output; none: each has its own."""
    output_bias: bool = False
    """Whether the output layer, which computes a logit for each word of the vocabulary, has a bias."""
    max_positions: Positions = 1024
    """The length of the longest sentence that the model accepts, in subword pieces, the end of the sentence included.
    Training leaves out longer sentences (see corpus.max_length), and translation cuts longer lines into parts."""

    @property
    def attentions_to_source(self) -> int:
        """The number of decoder layers with attention to the source; one of them gives the alignment."""
        return self.decoder_layers

    def why_not_packed(self) -> str:
        """Return why training.layout=packed is impossible, as words to put after it; empty if it is possible."""
        return f"needs model.kind=transformer, and this is model.kind={self.kind}"


class _WithScore(_Architecture):
    """The settings of architectures for whose attention one can choose the score."""

    score_key: ClassVar[str] = "attention_score"
    """The setting that names the score."""
    attention_scale: bool = False
    """Whether the attention score is divided by the square root of the keys' width. scaled_dot always is."""
    additive_bias: bool = False
    """Whether the hidden layer of the score additive has a bias: v^T tanh(W Q + U K + b)."""
    attention_window: MorePositions = 0
    """The number of positions that attention sees. For self-attention of a Transformer: on each side in the encoder,
    and before the current position in the decoder; 0: no limit. For local_attention of an rnn: on each side of a source
    position; this is D in the paper, which uses 10."""

    @model_validator(mode="after")
    def _check_score(self) -> Self:
        name, key = getattr(self, self.score_key), self.score_key
        if self.attention_scale and name in ("scaled_dot", "none"):
            reason = "that score is already divided by sqrt(d_k)" if name == "scaled_dot" else "there is no score"
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
    """The inner width of a feed-forward layer, between its linear maps; d_ff in the paper."""
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "relu"
    """The activation function of a feed-forward layer. swish is x sigmoid(x), as in the models of OPUS-MT; swiglu
    (Shazeer 2020) has a third linear map, so with the same ffn_dim the layer has 1.5 times the parameters."""
    num_heads: Width = 8
    """The number of heads of each attention; h in the paper. Each head is d_model / num_heads wide."""
    attention_score: ScoreName = "scaled_dot"
    """The formula of the score in every attention. scaled_dot: Q K^T / sqrt(d_k), as in the paper; dot: Q K^T; general:
    Q W K^T (Luong et al. 2015); additive: v^T tanh(W Q + U K) (Bahdanau et al. 2015); concat: w^T [Q; K]. All except
    scaled_dot take more time and memory."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """The positional encoding. sinusoidal: the paper's sine and cosine waves; learned: a vector for each position,
    which is trained with the model."""
    norm: Literal["post", "pre"] = "post"
    """Where layer normalisation is applied. post: after each residual sum, as in the paper; pre: before each sub-layer,
    and once more at the end."""
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
                f"d_model={self.d_model} is odd, but positions=sinusoidal needs pairs of a sine and a cosine: set an "
                "even d_model, or positions=learned"
            )
        return self

    @property
    def score(self) -> ScoreChoice:
        """The formula of the score in every attention. A dot with attention_scale is scaled_dot."""
        if self.attention_score == "dot" and self.attention_scale:
            return SCALED_DOT
        return ScoreChoice(self.attention_score, self.attention_scale, self.additive_bias)

    def why_not_packed(self) -> str:
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
    """The kind of recurrent cell. gru: gated recurrent unit (Cho et al. 2014); lstm: long short-term memory (Hochreiter
    and Schmidhuber 1997); rnn: without gates, h = tanh(W x + U h' + b), where h' is the state before (Elman 1990)."""
    encoder_layers: Layers = 1
    """The number of layers of the encoder. Each has two directions, and each direction is d_model / 2 wide."""
    decoder_layers: Layers = 1
    """The number of layers of the decoder. Each is d_model wide."""
    d_model: Width = 512
    """The width of the embeddings, of the encoder's two directions together, and of the decoder."""
    attention: Literal["none", ScoreName, "location", "fixed_concat"] = "additive"
    """How the decoder reads the source. dot, scaled_dot, general, additive, concat: by attention with the score that
    has this name in the Transformer's attention_score; location: a linear map from the query gives one score for each
    of max_positions positions, and the words there do not matter (Luong et al. 2015, eq. 8); fixed_concat: like
    location, but from the query and the last encoder state; none: the decoder sees only one vector for the whole
    source."""
    local_attention: Literal["none", "monotonic", "predictive"] = "none"
    """Whether each target word sees only a window of the source (Luong et al. 2015, sec. 3.2). none: it sees the whole
    source; monotonic: the window is around the word's own position (local-m); predictive: the window is around a
    position that the model predicts, and weights fall with the distance from that position (local-p)."""
    decoder: Literal["luong", "bahdanau"] = "luong"
    """The order of attention and recurrence in a decoder step. luong: attention comes second, with the new state as the
    query (Luong et al. 2015); bahdanau: attention comes first, with the old state (Bahdanau et al. 2015)."""
    input_feeding: bool = True
    """Whether a luong decoder gets its previous attentional vector as part of its input (Luong et al. 2015, sec. 3.3).
    The input of a bahdanau decoder always contains the context vector."""
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
                f"local_attention={self.local_attention} needs attention, but attention=none: choose another "
                "attention, or leave local_attention out"
            )
        if (self.local_attention == "none") != (self.attention_window == 0):
            raise ValueError(
                f"local_attention={self.local_attention} does not fit attention_window={self.attention_window}: set "
                "local_attention=monotonic or predictive and a window such as attention_window=10, or leave both out"
            )
        if self.decoder == "bahdanau" and not self.input_feeding:
            raise ValueError(
                "input_feeding=false is only for decoder=luong, because the context is always an input of "
                "decoder=bahdanau: leave input_feeding out, or set decoder=luong"
            )
        return self

    @property
    def attentions_to_source(self) -> int:
        return 0 if self.attention == "none" else 1


class ConvolutionalConfig(_Architecture):
    """The convolutional encoder-decoder (Gehring et al. 2017)."""

    kind: Literal["convolutional"]
    """The architecture. model.kind=transformer and model.kind=rnn have other settings."""
    encoder_layers: Layers = 8
    """The number of layers of the encoder. Each is a convolution over kernel_width outputs of the layer below."""
    decoder_layers: Layers = 8
    """The number of layers of the decoder. Each has a convolution and attention to the source."""
    kernel_width: int = Field(default=3, ge=3, le=1001)
    """How many positions a convolution sees, an odd number: in the encoder, a word and the same number of words on each
    side of it; in the decoder, the word and those before it."""
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    """The probability of dropout on the embeddings, on the input of each convolution, and on the output of the
    decoder. 0: off."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kernel_width % 2 == 0:
            raise ValueError(
                f"kernel_width={self.kernel_width} is even, but the encoder sees a word and the same number of words "
                "on each side: set an odd number"
            )
        return self


def _kind(values: Any) -> str:
    """Return the kind of a model section, which is either the values from a file or a section object."""
    return str(values.get("kind", "transformer") if isinstance(values, dict) else getattr(values, "kind", ""))


ModelConfig = Annotated[
    Annotated[TransformerConfig, Tag("transformer")]
    | Annotated[RnnConfig, Tag("rnn")]
    | Annotated[ConvolutionalConfig, Tag("convolutional")],
    Discriminator(_kind, custom_error_type="kind", custom_error_message="it must be transformer, rnn or convolutional"),
]
"""One of the architectures, by its `kind`."""
