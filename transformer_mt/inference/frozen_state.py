"""The decoder state of a frozen Transformer, and memories folded into weights.

Attention to the source (Vaswani et al. 2017, sec. 3.2.2) is softmax(x W_Q K^T) V W_O, without scale and biases. The
products W_Q K^T and V W_O are the same at every step: for one sentence, they are computed once and replace the memory.
For a short source they are smaller than W_Q and W_O. So each step reads less, and needs two products instead of four.

B sentences  W hypotheses of a sentence  M source positions, rounded up  N slots of the cache  R rows
D model width  H heads  K width of a head  F heads times source positions  L layers
X sentences times heads; in `Folding`, layers times heads
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.models.interface import DecoderState
from transformer_mt.models.transformer import DecoderLayer

MOST_POSITIONS = 64  # of a source, with padding; above the width of a head, folded memory is larger than the weights


class FoldedMemory(NamedTuple):
    """One layer's memory. Scores are x key^T + bias, and their softmax times value is the output without its bias."""

    key_FD: Tensor
    bias_F: Tensor
    """-inf at padding."""
    value_FD: Tensor


class Folding:
    """Folds memories with the weights of all layers' attention to the source, which it holds by head."""

    def __init__(self, layers: Sequence[DecoderLayer]) -> None:
        attentions = [layer.cross_attention for layer in layers]
        L, H, D = len(attentions), attentions[0].num_heads, attentions[0].d_model
        query_LDD = torch.stack([attention.in_projection.weight[:D] for attention in attentions]).detach()
        bias_LD = torch.stack([attention.in_projection.bias[:D] for attention in attentions]).detach()
        output_LDD = torch.stack([attention.out_projection.weight for attention in attentions]).detach()
        scale = (D // H) ** -0.5
        self.query_XKD = query_LDD.view(L * H, -1, D) * scale
        self.bias_X1K = bias_LD.view(L * H, 1, -1) * scale
        self.output_XKD = output_LDD.view(L, D, H, -1).permute(0, 2, 3, 1).flatten(0, 1).contiguous()
        self.num_layers = L

    def __call__(self, key_XKM: Tensor, value_XMK: Tensor, bias_M: Tensor) -> tuple[FoldedMemory, ...]:
        """The folded memory of each layer. `bias_M` is -inf at padding and 0 elsewhere."""
        key_XMD = torch.bmm(key_XKM.transpose(1, 2), self.query_XKD)
        bias_XM = torch.bmm(self.bias_X1K, key_XKM)[:, 0] + bias_M
        value_XMD = torch.bmm(value_XMK, self.output_XKD)
        L, D = self.num_layers, value_XMD.shape[2]
        layers = zip(key_XMD.view(L, -1, D), bias_XM.view(L, -1), value_XMD.view(L, -1, D), strict=True)
        return tuple(FoldedMemory(*layer) for layer in layers)


def attention_to_folded(x_RD: Tensor, memory: FoldedMemory, output_bias_D: Tensor, num_heads: int) -> Tensor:
    """The output of multi-head attention to the source, RD."""
    scores_RF = torch.addmm(memory.bias_F, x_RD, memory.key_FD.t())
    weights_RHM = scores_RF.view(x_RD.shape[0], num_heads, -1).softmax(dim=-1)
    return torch.addmm(output_bias_D, weights_RHM.flatten(1), memory.value_FD)


ROW = 16  # if rows have a multiple of this many numbers, softmax takes a tenth to a third of the time


@dataclass(frozen=True, kw_only=True)
class FrozenState(DecoderState):
    """The hypotheses of a sentence share its slots: one slot for each position of each hypothesis.

    A cached key never moves; `past_B1WN` says which slots belong to the past of a hypothesis.
    """

    keys_XKN: list[Tensor]
    """One tensor for each layer; also in the lists below."""
    values_XNK: list[Tensor]
    past_B1WN: Tensor
    """Added to scores: 0 at slots that the hypothesis may see, else -inf."""
    memory_keys_XKM: list[Tensor]
    memory_values_XMK: list[Tensor]
    memory_bias_B11M: Tensor
    """Added to scores: 0 at the source, -inf at padding."""
    position: int
    used: int
    """The number of used slots, which are the first ones."""
    folded: tuple[FoldedMemory, ...] = ()
    """One for each layer, which replaces the layer's memory; empty if the memory is used."""

    def follow(self, parent_BW: Tensor) -> "FrozenState":
        slots_B1WN = parent_BW[:, None, :, None].expand(-1, -1, -1, self.past_B1WN.shape[-1])
        return replace(self, past_B1WN=self.past_B1WN.gather(2, slots_B1WN))

    def keep(self, sentences: Tensor) -> "FrozenState":
        def kept(layers_XYZ: list[Tensor]) -> list[Tensor]:
            B, X = len(self.past_B1WN), len(layers_XYZ[0])
            by_sentence = (x_XYZ.view(B, X // B, *x_XYZ.shape[1:]) for x_XYZ in layers_XYZ)
            return [x_BHYZ.index_select(0, sentences).flatten(0, 1) for x_BHYZ in by_sentence]

        return replace(
            self,
            keys_XKN=kept(self.keys_XKN),
            values_XNK=kept(self.values_XNK),
            past_B1WN=self.past_B1WN.index_select(0, sentences),
            memory_keys_XKM=kept(self.memory_keys_XKM),
            memory_values_XMK=kept(self.memory_values_XMK),
            memory_bias_B11M=self.memory_bias_B11M.index_select(0, sentences),
        )

    def with_slots(self) -> "FrozenState":
        """The state with slots for one more position; each hypothesis sees its own new slot."""
        W, N = self.past_B1WN.shape[2:]
        state = self
        if self.used + W > N:
            room = ROW * math.ceil(W / 2)  # enough to make copies rare, and little enough to keep attention short
            state = replace(
                self,
                keys_XKN=[with_zeros(key_XKN, 2, room) for key_XKN in self.keys_XKN],
                values_XNK=[with_zeros(value_XNK, 1, room) for value_XNK in self.values_XNK],
                past_B1WN=F.pad(self.past_B1WN, (0, room), value=-math.inf),
            )
        state.past_B1WN[..., self.used : self.used + W].diagonal(dim1=2, dim2=3).zero_()
        return state


def with_zeros(x: Tensor, dim: int, number: int) -> Tensor:
    """F.pad(x) with `number` zeros at the end of one dimension. F.pad is slower: it first writes zeros everywhere."""
    length = x.shape[dim]
    longer = x.new_empty([*x.shape[:dim], length + number, *x.shape[dim + 1 :]])
    longer.narrow(dim, 0, length).copy_(x)
    longer.narrow(dim, length, number).zero_()
    return longer
