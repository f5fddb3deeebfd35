"""What a model, its vocabulary and its positions allow a search; the same for every engine."""

from typing import TYPE_CHECKING

from transformer_mt.errors import ConfigError
from transformer_mt.settings.model import ModelConfig

if TYPE_CHECKING:  # settings.py imports this module
    from transformer_mt.settings.experiment import DecodingConfig


def check_for_model(decoding: "DecodingConfig", model: ModelConfig, vocab_size: int | None) -> None:
    """Raises ConfigError for settings that this model cannot follow; `vocab_size` is of the target, if it is known."""
    attentions = model.attentions_to_source
    if decoding.alignment_layer > attentions:
        raise ConfigError(
            f"decoding.alignment_layer={decoding.alignment_layer} is more than the model's {attentions} "
            "layers with attention to the source"
        )
    if decoding.coverage_penalty and not attentions:
        raise ConfigError(
            f"decoding.coverage_penalty={decoding.coverage_penalty} needs attention, and model.attention=none has none"
        )
    if decoding.min_length >= model.max_positions:
        raise ConfigError(
            f"decoding.min_length={decoding.min_length} has no room in model.max_positions={model.max_positions}, "
            f"one of which is for the end: it can be at most {model.max_positions - 1}"
        )
    if vocab_size is not None and decoding.top_k > vocab_size:
        raise ConfigError(
            f"decoding.top_k={decoding.top_k} is more than the {vocab_size} pieces of the vocabulary; "
            "decoding.top_k=0 takes them all"
        )
