"""Absorbed projections: softmax((x W_Q) K^T) V W_O = softmax(x (W_Q K^T)) (V W_O), per head of cross-attention.

On the left is attention to the source (Vaswani et al. 2017, sec. 3.2.2), but for its scale and biases. What is in
brackets on the right is the same at every step: it is computed once for one sentence, and folded into the memory. For a
short source it takes less memory than W_Q and W_O. So each step reads less, and makes two products instead of four.

D model width  H heads  K width of a head  M source positions, rounded up  F heads times source positions  L layers
X layers times heads  R rows
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_mt.models.transformer import DecoderLayer

MOST_POSITIONS = 64  # of a source, padding included; with more than the width of a head it is larger than the weights


class FoldedMemory(NamedTuple):
    """One layer's memory: scores are x key^T + bias; their softmax times value is the output without its bias."""

    key_FD: Tensor
    bias_F: Tensor
    """-inf at padding."""
    value_FD: Tensor


class Folding:
    """The weights of the attention to the source in all layers, by head."""

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
