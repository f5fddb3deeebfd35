"""The weights of every attention in a model, under teacher forcing.

L layers  B sentences  H heads  S source positions  T target positions
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.base.errors import TranslationError, UserError
from transformer_mt.models.attention import Sight
from transformer_mt.models.convolutional import Convolutional
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.layouts import Sentences, whole_mask
from transformer_mt.models.multi_head import MultiHeadAttention
from transformer_mt.models.rnn import Rnn
from transformer_mt.models.transformer import EncoderLayer, Transformer
from transformer_mt.models.variants import VariedTransformer

FloatArray = NDArray[np.float32]
Attention = Literal["cross", "encoder", "decoder"]
"""The decoder's to the source; the encoder's to itself; the decoder's to itself."""


@dataclass(frozen=True)
class AttentionWeights:
    """The weights of each layer under teacher forcing; their rows sum to one, or with local attention to less."""

    encoder_LBHSS: Tensor
    decoder_LBHTT: Tensor
    cross_LBHTS: Tensor

    @classmethod
    def to_source(cls, cross_LBHTS: Tensor) -> Self:
        """Those of a model that attends to nothing but the source: it has no layers of self-attention."""
        _, B, _, T, S = cross_LBHTS.shape
        return cls(cross_LBHTS.new_zeros(0, B, 1, S, S), cross_LBHTS.new_zeros(0, B, 1, T, T), cross_LBHTS)

    def heads(self, attention: Attention, layer: int) -> Tensor:
        """BHTS, BHSS or BHTT of one layer, which is numbered as in `index_of`. Raises UserError as that does."""
        layers = {"cross": self.cross_LBHTS, "encoder": self.encoder_LBHSS, "decoder": self.decoder_LBHTT}[attention]
        return layers[index_of(attention, layer, len(layers))]


def index_of(attention: Attention, layer: int, num_layers: int) -> int:
    """The index, from 0, of a layer of that attention: 1 is the lowest, 0 the last but one, or the only one.

    Raises UserError if there is no such layer, or none at all.
    """
    if not num_layers:
        raise UserError(
            f"the {attention} has no self-attention in this model: its attention to the source is all that can be shown"
        )
    if not 0 <= layer <= num_layers:
        raise UserError(
            f"layer {layer}: the {attention} attention has layers 1 to {num_layers}; name one of them, or 0 for the "
            "last but one"
        )
    return layer - 1 if layer else max(0, num_layers - 2)


@runtime_checkable
class Ensembled(Protocol):
    """Several models that translate together."""

    def members(self) -> list[Seq2Seq]: ...


def attends_to_source(model: Seq2Seq) -> bool:
    """Whether there is attention to the source: without, `attention_weights` raises TranslationError."""
    models = model.members() if isinstance(model, Ensembled) else [model]
    return all(not isinstance(each, Rnn) or each.attends_to_source() for each in models)


def attention_to_source(model: Seq2Seq, source_BS: Tensor, decoder_input_BT: Tensor, layer: int) -> Tensor:
    """Teacher forcing: how much each target position looked at each source position, BTS; the mean over heads.

    Rows sum to one; those of predictive local attention to less. In a decoder layer: 1 is the lowest, 0 the last but
    one (Garg et al. 2019), or the only one. Raises TranslationError, and UserError if there is no such layer.
    """
    if isinstance(model, Ensembled):
        of_models = [attention_to_source(each, source_BS, decoder_input_BT, layer) for each in model.members()]
        return torch.stack(of_models).mean(dim=0)
    return attention_weights(model, source_BS, decoder_input_BT).heads("cross", layer).mean(dim=1)


def attention_weights(model: Seq2Seq, source_BS: Tensor, decoder_input_BT: Tensor) -> AttentionWeights:
    """Those of every attention; of an ensemble the mean of its models' to the source.

    Raises TranslationError if there is no attention.
    """
    record: list[Tensor] = []
    match model:
        case Transformer():
            return _of_transformer(model, source_BS, decoder_input_BT)
        case Convolutional():
            model.features(source_BS, decoder_input_BT, record)
            return AttentionWeights.to_source(torch.stack(record))  # of one head each
        case Rnn() if model.attends_to_source():
            model.features(source_BS, decoder_input_BT, record)
            return AttentionWeights.to_source(torch.cat(record, dim=2)[None])
        case Ensembled():
            mean_BTS = attention_to_source(model, source_BS, decoder_input_BT, layer=0)
            return AttentionWeights.to_source(mean_BTS[None, :, None])
    raise TranslationError(
        "the model has no attention (model.attention=none), so nothing says which word comes from which; "
        "train one with another model.attention"
    )


def _of_transformer(model: Transformer, source_BS: Tensor, decoder_input_BT: Tensor) -> AttentionWeights:
    encoder = [layer.attention for layer in model.encoder if isinstance(layer, EncoderLayer)]
    decoder = [layer.self_attention for layer in model.decoder_layers()]
    cross = [layer.cross_attention for layer in model.decoder_layers()]
    with recorded(encoder) as of_encoder, recorded(decoder) as of_decoder, recorded(cross) as to_source:
        if isinstance(model, VariedTransformer):  # in padded rows, whatever is faster
            model.features(Sentences(source_BS), Sentences(decoder_input_BT))
        else:
            model.features(source_BS, decoder_input_BT)
    return AttentionWeights(torch.stack(of_encoder), torch.stack(of_decoder), torch.stack(to_source))


@contextmanager
def recorded(attentions: Sequence[MultiHeadAttention]) -> Iterator[list[Tensor]]:
    """Keep the weights BHTS of these attentions to padded rows, a tensor for each use; in one thread at a time."""
    weights: list[Tensor] = []
    for each in attentions:
        each.attend = partial(_recording, each, weights)  # type: ignore[method-assign]
    try:
        yield weights
    finally:
        for each in attentions:
            del each.attend


def _recording(
    self: MultiHeadAttention,
    weights: list[Tensor],
    query_BHTK: Tensor,
    key_BHSK: Tensor,
    value_BHSK: Tensor,
    see: Sight,
) -> Tensor:
    """`MultiHeadAttention.attend`. What is read of values that are the unit vectors are the weights, BHTS."""
    length, is_training = key_BHSK.shape[2], self.training
    units_BHSS = torch.eye(length, dtype=value_BHSK.dtype, device=value_BHSK.device).expand(*key_BHSK.shape[:3], -1)
    self.eval()  # without dropout
    weights.append(self.attention(query_BHTK, key_BHSK, units_BHSS, whole_mask(see)))
    self.train(is_training)
    return type(self).attend(self, query_BHTK, key_BHSK, value_BHSK, see)
