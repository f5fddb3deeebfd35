"""What is exported: a model directory, its weights as arrays.

D model width  V vocabulary  T positions
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from transformer_mt.config import Config, ModelConfig, load_config
from transformer_mt.data.tokenizer import Tokenizer

Array = NDArray[np.float32]

# Both are for the defaults of programs that know no limit and no length penalty for each sentence.
TYPICAL_LENGTH = 25  # pieces
LONGEST_TRANSLATION = 512  # pieces

# In evaluation they are the same whatever their value.
_OF_TRAINING_ALONE = {"dropout", "attention_dropout"}


@dataclass(frozen=True)
class Trained:
    """What `average` wrote."""

    config: Config
    tokenizer: Tokenizer
    weights: dict[str, Array]
    """By their names in our Transformer; a tied one once."""

    @property
    def source_embedding_VD(self) -> Array:
        return self.weights.get("source_embedding.weight", self.target_embedding_VD)

    @property
    def target_embedding_VD(self) -> Array:
        return self.weights["target_embedding.weight"]

    @property
    def output_VD(self) -> Array:
        return self.weights.get("output_embedding.weight", self.target_embedding_VD)


def read_trained(model_dir: Path, overrides: list[str]) -> Trained:
    """A model directory that is known to be whole, with other defaults of decoding."""
    config = load_config(model_dir / "config.yaml", overrides, "decoding")
    return Trained(config, Tokenizer.load(model_dir), load_file(model_dir / "model.safetensors"))


def beyond(model: ModelConfig, held: set[str]) -> str | None:
    """The first setting that a format which holds these keys knows nothing of; None if there is none.

    So what a newer model has besides is refused, and not left out, as long as nobody has taught the format.
    """
    for key, field in type(model).model_fields.items():
        value = getattr(model, key)
        if key not in held | _OF_TRAINING_ALONE and value != field.default:
            return f"it has no model.{key}={value}"
    return None
