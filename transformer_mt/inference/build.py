"""A configuration becomes a model."""

from typing import assert_never

from transformer_mt.inference.fast import fast
from transformer_mt.models.convolutional import Convolutional
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.layout import VariedTransformer
from transformer_mt.models.rnn import Rnn
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.model import ConvolutionalConfig, Kernels, ModelConfig, RnnConfig, TransformerConfig
from transformer_mt.settings.needed_memory import check_model_memory


def build_model(
    config: ModelConfig, source_vocab_size: int, target_vocab_size: int, kernels: Kernels = "fast"
) -> Seq2Seq:
    """With weights drawn from PyTorch's random numbers; `plain` runs the code in models/ as it is.

    Raises ConfigError if the weights are more than this machine's memory.
    """
    check_model_memory(config, source_vocab_size, target_vocab_size)
    model = _plain_model(config, source_vocab_size, target_vocab_size)
    return fast(model) if kernels == "fast" else model


def _plain_model(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Seq2Seq:
    match config:
        case TransformerConfig():
            transformer = VariedTransformer if is_varied(config) else Transformer
            return transformer(config, source_vocab_size, target_vocab_size)
        case RnnConfig():
            return Rnn(config, source_vocab_size, target_vocab_size)
        case ConvolutionalConfig():
            return Convolutional(config, source_vocab_size, target_vocab_size)
        case _:
            assert_never(config)


def is_varied(config: TransformerConfig) -> bool:
    """Whether models/transformer.py has not all that these settings say."""
    others = config.positions != "sinusoidal" or config.activation != "relu" or config.attention_window != 0
    return others or bool(config.why_not_packed())
