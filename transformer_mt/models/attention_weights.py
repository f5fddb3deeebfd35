"""The weights of every attention in a model, under teacher forcing.

L layers  B sentences  H heads  S source positions  T target positions
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transformer_mt.base.errors import TranslationError, UserError
from transformer_mt.models.attention import MultiHeadAttention, Sight
from transformer_mt.models.convolutional import Convolutional
from transformer_mt.models.ensemble import Ensemble
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.layouts import whole_mask
from transformer_mt.models.rnn import Rnn
from transformer_mt.models.transformer import EncoderLayer, Transformer

FloatArray = NDArray[np.float32]
Attention = Literal["cross", "encoder", "decoder"]
"""From the decoder to the source; within the encoder; within the decoder."""


@dataclass(frozen=True)
class AttentionWeights:
    """The weights of each layer under teacher forcing. Rows sum to one, or to less with local attention."""

    encoder_LBHSS: Tensor
    decoder_LBHTT: Tensor
    cross_LBHTS: Tensor

    @classmethod
    def to_source(cls, cross_LBHTS: Tensor) -> Self:
        """The weights of a model without self-attention."""
        _, B, _, T, S = cross_LBHTS.shape
        return cls(cross_LBHTS.new_zeros(0, B, 1, S, S), cross_LBHTS.new_zeros(0, B, 1, T, T), cross_LBHTS)


def index_of(attention: Attention, layer: int, num_layers: int) -> int:
    """The index, from 0, of a layer number of an attention: 1 is the lowest layer, 0 the last but one or the only one.

    Raises UserError if there is no such layer, or no layer at all.
    """
    if not num_layers:
        raise UserError(
            f"the {attention} of this model has no self-attention; choose the attention to the source (cross) instead"
        )
    if not 0 <= layer <= num_layers:
        raise UserError(
            f"layer {layer}: the {attention} attention has layers 1 to {num_layers}; choose one of them, or 0 for the "
            "last but one"
        )
    return layer - 1 if layer else max(0, num_layers - 2)


def attends_to_source(model: Seq2Seq) -> bool:
    """Whether the model attends to the source. If not, `attention_weights` raises TranslationError."""
    models = model.members() if isinstance(model, Ensemble) else [model]
    return all(not isinstance(each, Rnn) or each.attends_to_source() for each in models)


def attention_to_source(model: Seq2Seq, source_BS: Tensor, decoder_input_BT: Tensor, layer: int) -> Tensor:
    """The weight of each source position at each target position, under teacher forcing; the mean over heads, BTS.

    Rows sum to one, or to less with predictive local attention. `layer` is a decoder layer: 1 is the lowest, 0 the last
    but one (Garg et al. 2019) or the only one. Raises TranslationError, and UserError if there is no such layer.
    """
    if isinstance(model, Ensemble):
        of_models = [attention_to_source(each, source_BS, decoder_input_BT, layer) for each in model.members()]
        return torch.stack(of_models).mean(dim=0)
    cross_LBHTS = attention_weights(model, source_BS, decoder_input_BT).cross_LBHTS
    return cross_LBHTS[index_of("cross", layer, len(cross_LBHTS))].mean(dim=1)


def attention_weights(model: Seq2Seq, source_BS: Tensor, decoder_input_BT: Tensor) -> AttentionWeights:
    """The weights of every attention; of an ensemble, the mean to the source. Raises TranslationError if none."""
    match model:
        case Transformer():
            return _of_transformer(model, source_BS, decoder_input_BT)
        case Convolutional():
            with last_outputs(model.decoder) as cross_LB1TS:
                model.features(source_BS, decoder_input_BT)
            return AttentionWeights.to_source(torch.stack(cross_LB1TS))
        case Rnn() if model.attends_to_source():
            with last_outputs([model.decoder.context]) as cross_B1TS:  # of all words, or of one after the other
                model.features(source_BS, decoder_input_BT)
            return AttentionWeights.to_source(torch.cat(cross_B1TS, dim=2)[None])
        case Ensemble():
            mean_BTS = attention_to_source(model, source_BS, decoder_input_BT, layer=0)
            return AttentionWeights.to_source(mean_BTS[None, :, None])
    raise TranslationError(
        "the model has no attention (model.attention=none), so it cannot tell which word comes from which; "
        "train a model with another model.attention"
    )


def _of_transformer(model: Transformer, source_BS: Tensor, decoder_input_BT: Tensor) -> AttentionWeights:
    encoder = [layer.attention for layer in model.encoder if isinstance(layer, EncoderLayer)]
    decoder = [layer.self_attention for layer in model.decoder_layers()]
    cross = [layer.cross_attention for layer in model.decoder_layers()]
    with recorded(encoder) as of_encoder, recorded(decoder) as of_decoder, recorded(cross) as to_source:
        model.features(source_BS, decoder_input_BT)
    return AttentionWeights(torch.stack(of_encoder), torch.stack(of_decoder), torch.stack(to_source))


@contextmanager
def last_outputs(modules: Iterable[nn.Module]) -> Iterator[list[Tensor]]:
    """Record the last of the outputs of these modules, at each call."""
    outputs: list[Tensor] = []
    with ExitStack() as hooks:
        for each in modules:
            hooks.enter_context(each.register_forward_hook(lambda _, __, output: outputs.append(output[-1])))
        yield outputs


@contextmanager
def recorded(attentions: Sequence[MultiHeadAttention]) -> Iterator[list[Tensor]]:
    """Record the weights BHTS of these attentions in padded rows, one tensor for each call. Not for several threads."""
    weights: list[Tensor] = []

    def noted(self: MultiHeadAttention, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, see: Sight) -> Tensor:
        """`MultiHeadAttention.attend`, recorded: if values are unit vectors, attention returns its weights, BHTS."""
        units_SS = torch.eye(key_BHSK.shape[2], dtype=value_BHSK.dtype, device=value_BHSK.device)
        is_training = self.training
        self.eval()  # without dropout
        weights.append(self.attention(query_BHTK, key_BHSK, units_SS.expand(*key_BHSK.shape[:3], -1), whole_mask(see)))
        self.train(is_training)
        return type(self).attend(self, query_BHTK, key_BHSK, value_BHSK, see)

    for each in attentions:
        each.attend = partial(noted, each)  # type: ignore[method-assign]
    try:
        yield weights
    finally:
        for each in attentions:
            del each.attend
