"""With which settings of a model weights mean something else."""

from pathlib import Path

from transformer_mt.settings.model import ModelConfig
from transformer_mt.settings.reading import load_config

ONLY_FOR_TRAINING = {"dropout", "attention_dropout"}
"""Settings that make no difference when a model is used."""
# How many positions there are says nothing about weights. Where each position has weights, their shapes differ.
_FREE = ONLY_FOR_TRAINING | {"max_positions"}


def other_meaning_than(config: Path, model: ModelConfig) -> list[str]:
    """`other_meaning` for the weights that a configuration file belongs to."""
    return other_meaning(load_config(config).model, model)


def other_meaning(weights: ModelConfig, model: ModelConfig) -> list[str]:
    """Return `key: value, now value of the model` for each setting by which weights mean something else in this model.

    `weights` are the settings with which they were trained. Settings that change shapes count, and all others, too,
    except those named above: so one that is added later counts.
    """
    if weights.kind != model.kind:
        return [f"model.kind: {weights.kind}, now {model.kind}"]
    return [
        f"model.{key}: {value}, now {getattr(model, key)}"
        for key, value in weights
        if key not in _FREE and value != getattr(model, key)
    ]
