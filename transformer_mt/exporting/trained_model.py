"""The trained model to export, with its weights as NumPy arrays.

D model width  V vocabulary  T positions
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from transformer_mt.base.languages import EOS
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.model_settings import ModelConfig, TransformerConfig
from transformer_mt.settings.reading import ONLY_FOR_TRAINING, load_config
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.training_lines import TrainingLines

Array = NDArray[np.float32]

SUPPORTED = {
    *("encoder_layers", "decoder_layers", "d_model", "ffn_dim", "num_heads"),
    *("activation", "norm", "tied_embeddings", "positions", "max_positions", "output_bias"),
}
"""The settings of models that the formats support; Hugging Face's format does not support `positions`."""
LONGEST_TRANSLATION = 512  # in pieces, for programs that cannot compute a limit for each sentence


@dataclass(frozen=True)
class Trained:
    """The content of a model directory written by `average`."""

    config: Config
    tokenizer: Tokenizer
    training_lines: TrainingLines
    weights: dict[str, Array]
    """The weights by their names in our Transformer. Tied weights are stored under one name only."""

    @property
    def model(self) -> TransformerConfig:
        assert isinstance(self.config.model, TransformerConfig), "`unsupported_setting` has rejected other kinds"
        return self.config.model


def read_trained(model_dir: Path, overrides: list[str]) -> Trained:
    """Read a model directory that was checked before. `overrides` change its settings of decoding."""
    config = load_config(model_dir / "config.yaml", overrides, "decoding")
    weights = load_file(model_dir / "model.safetensors")
    return Trained(config, Tokenizer.load(model_dir), TrainingLines.load(model_dir), weights)


def random_pairs(trained: Trained, count: int) -> list[tuple[list[int], list[int]]]:
    """Pairs of sentences of 1 to 30 random pieces and EOS, the same at each call."""
    generator, longest = np.random.default_rng(1), min(30, trained.config.model.max_positions - 1)

    def sentence(vocab_size: int) -> list[int]:
        return [*generator.integers(EOS + 1, vocab_size, size=generator.integers(longest) + 1).tolist(), EOS]

    sizes = trained.tokenizer.source_vocab_size, trained.tokenizer.target_vocab_size
    return [(sentence(sizes[0]), sentence(sizes[1])) for _ in range(count)]


def unsupported_setting(model: ModelConfig, supported: set[str]) -> str | None:
    """Why a format that supports only the settings in `supported` cannot store this model; None if it can."""
    if not isinstance(model, TransformerConfig):
        return f"it supports only Transformers, and this model has model.kind={model.kind}"
    for key, field in type(model).model_fields.items():
        value = getattr(model, key)
        if key not in supported | ONLY_FOR_TRAINING and value != field.default:
            return f"it does not support model.{key}={value}"
    return None
