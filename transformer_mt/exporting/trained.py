"""What is exported: a model directory, its weights as arrays.

D model width  V vocabulary  T positions
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.model import ModelConfig, TransformerConfig
from transformer_mt.settings.reading import load_config
from transformer_mt.vocabulary import EOS

Array = NDArray[np.float32]

LONGEST_TRANSLATION = 512  # pieces, for programs that know no limit for each sentence

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
    def model(self) -> TransformerConfig:
        assert isinstance(self.config.model, TransformerConfig), "others have been refused"
        return self.config.model

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


def random_sources(trained: Trained, count: int) -> list[list[int]]:
    """Sentences of 1 to 30 of the source's pieces and EOS, the same each time."""
    generator = np.random.default_rng(1)
    size, longest = trained.tokenizer.source_vocab_size, min(30, trained.config.model.max_positions - 1)
    lengths = generator.integers(1, longest, size=count, endpoint=True)
    return [[*generator.integers(EOS + 1, size, size=length).tolist(), EOS] for length in lengths]


def beyond(model: ModelConfig, held: set[str]) -> str | None:
    """The first setting that a format which holds these keys knows nothing of; None if there is none.

    So what a newer model has besides is refused, and not left out, as long as nobody has taught the format.
    """
    if not isinstance(model, TransformerConfig):
        return f"it holds Transformers alone, and this is model.kind={model.kind}"
    for key, field in type(model).model_fields.items():
        value = getattr(model, key)
        if key not in held | _OF_TRAINING_ALONE and value != field.default:
            return f"it has no model.{key}={value}"
    return None
