"""A configuration becomes a model."""

from typing import assert_never

import torch
from torch import nn

from transformer_mt.errors import ConfigError
from transformer_mt.host_memory import machine_memory
from transformer_mt.inference.fast import fast
from transformer_mt.models.convolutional import Convolutional
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.layout import VariedTransformer
from transformer_mt.models.rnn import Rnn
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.bounds import Kernels
from transformer_mt.settings.model import ConvolutionalConfig, ModelConfig, RnnConfig, TransformerConfig


def build_model(
    config: ModelConfig, source_vocab_size: int, target_vocab_size: int, kernels: Kernels = "fast"
) -> Seq2Seq:
    """With weights drawn from PyTorch's random numbers; `plain` runs the code in models/ as it is.

    Raises ConfigError if the weights are more than this machine's memory.
    """
    with torch.device("meta"):  # shapes without memory
        check_memory(_plain_model(config, source_vocab_size, target_vocab_size))
    model = _plain_model(config, source_vocab_size, target_vocab_size)
    return fast(model) if kernels == "fast" else model


def check_memory(model: nn.Module, numbers_per_weight: int = 1) -> None:
    """Raises ConfigError if this machine has no memory for so many fp32 numbers for each weight of a model."""
    num_weights = sum(weight.numel() for weight in model.parameters())
    needed, memory = 4 * numbers_per_weight * num_weights, machine_memory()
    if needed > memory:
        raise ConfigError(
            f"a model with these settings has {num_weights:,} weights and needs {needed / 1e9:,.1f} GB of memory; this "
            f"machine has {memory / 1e9:,.1f} GB. Make model smaller, or take a larger machine"
        )


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
