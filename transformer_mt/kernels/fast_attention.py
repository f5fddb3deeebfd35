"""Which kernel computes softmax(Q K^T / sqrt(d_k)) V, by the kind of its mask: one formula, four ways to be fast.

The plain PyTorch that each of them equals is in `models.attention.attention`, with padding put back where a kernel
leaves it out.

B sentences  T query positions  S key positions  H heads  K width of a head  N packed queries  M packed keys
"""

from torch import Tensor
from torch.nn import functional as F

from transformer_mt.kernels.near_attention import Near, NearRows, near_attention, near_attention_of_rows
from transformer_mt.kernels.packed_attention import Segments, variable_length_attention
from transformer_mt.kernels.row_attention import RowMask, attention_over_rows

Mask = Tensor | Near | Segments | RowMask | NearRows
"""Which keys a query may see: booleans that broadcast to BHTS, or what stands for them where less is computed."""


def shown(mask: Mask) -> Tensor:
    """The mask of padded rows as booleans, which broadcast to BHTS."""
    if isinstance(mask, Near):
        return mask.whole()
    assert isinstance(mask, Tensor), "other scores, and recorded weights, need padded rows"
    return mask


def fast_attention(
    query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Mask, dropout: float = 0.0
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, eq. 1), BHTK. The weights are never at hand.

    Where padding is left out, queries are HNK, keys and values HMK, and the output HNK. Only padded rows allow dropout
    of the weights.
    """
    if isinstance(mask, Tensor):
        return F.scaled_dot_product_attention(query_BHTK, key_BHSK, value_BHSK, attn_mask=mask, dropout_p=dropout)
    if isinstance(mask, Near):
        return near_attention(query_BHTK, key_BHSK, value_BHSK, mask, lambda weights: F.dropout(weights, dropout))
    assert not dropout, "dropout of the weights needs padded rows"
    query_NHK, key_MHK, value_MHK = (x.transpose(0, 1) for x in (query_BHTK, key_BHSK, value_BHSK))
    if isinstance(mask, RowMask):
        return attention_over_rows(query_NHK, key_MHK, value_MHK, mask).transpose(0, 1)
    if isinstance(mask, NearRows):
        return near_attention_of_rows(query_NHK, key_MHK, value_MHK, mask).transpose(0, 1)
    return variable_length_attention(query_NHK, key_MHK, value_MHK, mask).transpose(0, 1)
