"""Checks before the work begins whether this machine has the memory for a model, and for a search. No PyTorch needed.

The numbers are a lower bound of the memory that is needed if a translation gets as long as it may.
"""

from transformer_mt.errors import ConfigError
from transformer_mt.host_memory import machine_memory
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.settings.model import ConvolutionalConfig, ModelConfig, RnnConfig, TransformerConfig

_FP32 = 4  # bytes of a number
IN_TRAINING = 4  # numbers for each weight: the weight, its gradient and Adam's two moving averages


def check_model_memory(model: ModelConfig, source_vocab_size: int, target_vocab_size: int, copies: int = 1) -> None:
    """Raises ConfigError if this machine has no memory for `copies` fp32 numbers for each weight of a model."""
    weights = least_weights(model, source_vocab_size, target_vocab_size)
    needed, memory = weights * copies * _FP32, machine_memory()
    if needed > memory:
        purpose = "to train it" if copies == IN_TRAINING else "for its weights"
        raise ConfigError(
            f"a model of model.encoder_layers={model.encoder_layers}, model.decoder_layers={model.decoder_layers} and "
            f"model.d_model={model.d_model} has about {weights:,} weights and needs {_gigabytes(needed)} {purpose}; "
            f"this machine has {_gigabytes(memory)}. Make the model smaller, or take a larger machine"
        )


def check_search_memory(
    decoding: DecodingConfig, model: ModelConfig, vocab_size: int, max_length: int, *, keeps_all_pasts: bool
) -> None:
    """Raises ConfigError if this machine has no memory to translate one sentence into `max_length` target pieces.

    `keeps_all_pasts` says that a search keeps the pasts of all hypotheses of a sentence together. Then each hypothesis
    has an attention score for each piece of each other hypothesis, so memory grows with the square of their number.
    """
    width = decoding.n_best if decoding.sampling else decoding.beam_size
    of_words = vocab_size * _FP32
    # Each layer of a Transformer has a key and a value for each piece that a hypothesis may see.
    of_pieces = 0
    if isinstance(model, TransformerConfig):
        seen = min(max_length, model.attention_window + 1) if model.attention_window else max_length
        of_pieces = seen * model.decoder_layers * 2 * model.d_model * _FP32
        if keeps_all_pasts:
            of_pieces += max_length * width * model.num_heads * _FP32
    needed, memory = width * (of_words + of_pieces), machine_memory()
    if needed > memory:
        key = "mbr_candidates" if decoding.mbr_candidates else "n_best" if decoding.sampling else "beam_size"
        raise ConfigError(
            f"decoding.{key}={width} needs {_gigabytes(needed)} of memory for one sentence of up to {max_length:,} "
            f"pieces; this machine has {_gigabytes(memory)}. Lower decoding.{key}, or decoding.max_extra_length"
        )


def least_weights(model: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> int:
    """Count the weights in the matrices of a model, without biases, norms and parameters of attention scores."""
    vocab_sizes = {
        "all": target_vocab_size,
        "target": source_vocab_size + target_vocab_size,
        "none": source_vocab_size + 2 * target_vocab_size,
    }
    d = model.d_model
    embeddings = vocab_sizes[model.tied_embeddings] * d
    if isinstance(model, RnnConfig):
        gates = {"rnn": 1, "gru": 3, "lstm": 4}[model.cell]
        # Each direction of the encoder is half as wide. Each gate reads the layer below and the previous state.
        return embeddings + gates * (model.encoder_layers * 3 * d * d // 2 + model.decoder_layers * 2 * d * d)
    if isinstance(model, ConvolutionalConfig):
        layers = model.encoder_layers + model.decoder_layers
        maps = 4 + 2 * model.decoder_layers
        return embeddings + 2 * model.max_positions * d + layers * model.kernel_width * 2 * d * d + maps * d * d
    feed_forward = (3 if model.activation == "swiglu" else 2) * d * model.ffn_dim
    encoder, decoder = 4 * d * d + feed_forward, 8 * d * d + feed_forward
    positions = model.max_positions * d  # a table, learned or not
    return embeddings + positions + model.encoder_layers * encoder + model.decoder_layers * decoder


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
