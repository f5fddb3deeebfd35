"""The attention of a sentence and its translation, as the Python API returns it. Imports no PyTorch and no NumPy."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.engine import Engine, Sentence
from transformer_mt.errors import NotFiniteError, TranslationError
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.vocabulary import BOS

if TYPE_CHECKING:
    from transformer_mt.models.attention_weights import FloatArray


@dataclass(frozen=True)
class PairAttention:
    """How much each piece of a sentence and of its translation looked at each other piece, by layer and head.

    L layers, the lowest first; H heads; S source pieces; T target pieces. Each row, which is the last axis, sums to 1;
    with model.local_attention=predictive to less. A recurrent or a convolutional model has no self-attention: there
    encoder_LHSS and decoder_LHTT have no layers, and H is 1. An ensemble gives the mean of its models' attention to the
    source in the last layer but one, as one layer of one head.
    """

    text: str
    """The translation."""
    source: list[str]
    """S subword pieces; the last is the end of the sentence."""
    target: list[str]
    """T subword pieces; the last is the end of the sentence."""
    target_before: list[str]
    """T pieces: what the decoder read while it wrote each piece of `target`. The first is the begin of the sentence."""
    encoder_LHSS: "FloatArray"
    """How much the encoder looked from each piece of `source` at each."""
    decoder_LHTT: "FloatArray"
    """How much the decoder looked at each piece of `target_before` while it wrote each piece of `target`."""
    cross_LHTS: "FloatArray"
    """How much the decoder looked at each piece of `source` while it wrote each piece of `target`."""


def attention_of_pair(
    engine: Engine, tokenizer: Tokenizer, source: str, target: str | None, decoding: DecodingConfig
) -> PairAttention:
    """The weights for a target that is given, or else for the best translation of the source.

    Raises TranslationError for a text that is blank or too long, and if the engine or the model has no attention;
    NotFiniteError for numbers that are not finite.
    """
    source_ids = _checked(tokenizer.encode_source([source])[0], "source", engine)
    if target is None:
        [found] = engine.translate([Sentence(source_ids)], decoding)
        if not found:
            raise NotFiniteError.of_line(1)
        target_ids = found[0].tokens
    else:
        target_ids = _checked(tokenizer.encode_target([target])[0], "target", engine)
    weights = engine.attention(source_ids, target_ids)
    if not all(math.isfinite(kind.sum()) for kind in weights):
        raise NotFiniteError.of_line(1)
    pieces = tokenizer.target_pieces
    text = tokenizer.decode_target(target_ids)
    sides = tokenizer.source_pieces(source_ids), pieces(target_ids), pieces([BOS, *target_ids[:-1]])
    return PairAttention(text, *sides, *weights)


def _checked(ids: list[int], side: str, engine: Engine) -> list[int]:
    """The ids, if they are a sentence that the model takes."""
    if len(ids) == 1:
        raise TranslationError(f"the {side} is blank: give a sentence")
    if len(ids) > engine.max_positions:
        raise TranslationError(
            f"the {side} has {len(ids):,} subword pieces, and the model takes at most {engine.max_positions:,} "
            "(model.max_positions): give a single, shorter sentence"
        )
    return ids
