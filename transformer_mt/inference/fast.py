"""Exchanges the parts of a model for faster ones that compute the same, to rounding. What models/ says runs without.

N packed tokens  B sentences  S, T positions  D model width  H heads  K width of a head
"""

from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.kernels.dropout import Dropout
from transformer_mt.kernels.linear import Linear, linear, linear_maps, linear_relu
from transformer_mt.kernels.packed_attention import Segments, packed_self_attention
from transformer_mt.models.attention import Sight
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.multi_head import Memory, MultiHeadAttention
from transformer_mt.models.transformer import FeedForward, Transformer


class FastFeedForward(FeedForward):
    """Computes the ReLU together with the product before it."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        if self.activation != "relu":
            return super().forward(x_BTD)
        output_BTD: Tensor = self.outer(linear_relu(x_BTD, self.inner.weight, self.inner.bias))
        return output_BTD


class FastMultiHeadAttention(MultiHeadAttention):
    """Attends by kernels for GPUs. What leaves out padding on CPUs is a kind of `Sight` (models/packed.py)."""

    def forward(self, x_BTD: Tensor, see: Sight) -> Tensor:
        if not isinstance(see, Segments):
            return super().forward(x_BTD, see)
        # On GPUs the gradients of the three are then made side by side, as the product was.
        qkv_N3HK = self.in_projection(x_BTD).unflatten(-1, (3, self.num_heads, -1))
        output_ND: Tensor = self.out_projection(packed_self_attention(qkv_N3HK, see).flatten(-2))
        return output_ND

    def project_rows(self, x_BTD: Tensor, rows: slice) -> Tensor:
        return linear(x_BTD, self.in_projection.weight[rows], self.in_projection.bias[rows])

    def attention(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Tensor) -> Tensor:
        if not query_BHTK.is_cuda or not self.is_scaled_dot or self.record is not None:
            return super().attention(query_BHTK, key_BHSK, value_BHSK, mask)
        dropout = self.dropout.p if self.training else 0.0
        return F.scaled_dot_product_attention(query_BHTK, key_BHSK, value_BHSK, attn_mask=mask, dropout_p=dropout)


class FastTransformer(Transformer):
    """Makes the keys and values of packed sources for all layers in one product."""

    def memories(self, memory_BSD: Tensor, see: Sight) -> list[Memory]:
        if not isinstance(see, Segments):
            return super().memories(memory_BSD, see)
        attentions = [layer.cross_attention for layer in self.decoder_layers()]
        of_keys = slice(self.d_model, None)
        maps = [(each.in_projection.weight[of_keys], each.in_projection.bias[of_keys]) for each in attentions]
        made = zip(attentions, linear_maps(memory_BSD, maps), strict=True)
        return [attention.split_memory(both_ND, see) for attention, both_ND in made]


FASTER: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: Linear,
    nn.Dropout: Dropout,
    FeedForward: FastFeedForward,
    MultiHeadAttention: FastMultiHeadAttention,
    Transformer: FastTransformer,
}
"""What is exchanged for what. Each has the same parameters."""


def fast(model: Seq2Seq) -> Seq2Seq:
    """The model itself, with its parts exchanged."""
    for module in model.modules():
        module.__class__ = FASTER.get(type(module), type(module))
    model.is_fast = True
    return model
