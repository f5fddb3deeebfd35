"""A configuration becomes a model."""

from typing import assert_never

from transformer_mt.models.convolutional import Convolutional
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.rnn import Rnn
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.model import ConvolutionalConfig, ModelConfig, RnnConfig, TransformerConfig
from transformer_mt.settings.needed_memory import check_model_memory


def build_model(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Seq2Seq:
    """With weights drawn from PyTorch's random numbers.

    Raises ConfigError if they are more than this machine's memory.
    """
    check_model_memory(config, source_vocab_size, target_vocab_size)
    match config:
        case TransformerConfig():
            return Transformer(config, source_vocab_size, target_vocab_size)
        case RnnConfig():
            return Rnn(config, source_vocab_size, target_vocab_size)
        case ConvolutionalConfig():
            return Convolutional(config, source_vocab_size, target_vocab_size)
        case _:
            assert_never(config)
