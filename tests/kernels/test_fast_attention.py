"""Whatever kind of mask: a kernel computes the plain formula of attention."""

import pytest
import torch
from helpers.formulas import randn
from helpers.packing import pack

from transformer_mt.kernels.fast_attention import fast_attention, shown
from transformer_mt.kernels.near_attention import Near
from transformer_mt.models.attention import attention
from transformer_mt.models.layout import Sentences
from transformer_mt.models.packed import unpadded
from transformer_mt.vocabulary import PAD

H, K = 3, 4


@pytest.mark.parametrize("lie", [Sentences, pack, unpadded], ids=["padded", "packed", "unpadded"])
@pytest.mark.parametrize("window", [0, 2])
def test_it_is_the_plain_formula_with_a_mask_of_booleans(lie, window, sources):
    tokens_BT = sources(5, 7)
    here, plainly = lie(tokens_BT), Sentences(tokens_BT)
    inputs = [randn(5, H, 7, K, seed=seed) for seed in (2, 3, 4)]
    real_BT = tokens_BT != PAD
    for mask, plain_mask in (
        (here.everywhere(window), plainly.everywhere(window)),
        (here.backwards(window), plainly.backwards(window)),
        (here.across(here), plainly.across(plainly)),
    ):
        expected_BHTK, _ = attention(*inputs, shown(plain_mask))
        if isinstance(mask, torch.Tensor | Near):
            mixed_BTHK = fast_attention(*inputs, mask).transpose(1, 2)
            torch.testing.assert_close(mixed_BTHK[real_BT], expected_BHTK.transpose(1, 2)[real_BT])
            continue
        packed = [x.transpose(1, 2)[real_BT] for x in inputs]
        num_rows = len(here.tokens)  # some of them are of dummies
        packed = [torch.cat([x_NHK, x_NHK.new_ones(num_rows - len(x_NHK), H, K)]).transpose(0, 1) for x_NHK in packed]
        mixed_NHK = fast_attention(*packed, mask).transpose(0, 1)
        torch.testing.assert_close(mixed_NHK[: int(real_BT.sum())], expected_BHTK.transpose(1, 2)[real_BT])


def test_weights_are_not_dropped_out_where_padding_is_left_out(sources):
    words = unpadded(sources(2, 3))
    query_HNK = randn(H, len(words.tokens), K)
    with pytest.raises(AssertionError, match="padded rows"):
        fast_attention(query_HNK, query_HNK, query_HNK, words.everywhere(), dropout=0.1)
    with pytest.raises(AssertionError, match="padded rows"):
        fast_attention(query_HNK, query_HNK, query_HNK, words.everywhere(2), dropout=0.1)
    with pytest.raises(AssertionError, match="padded rows"):
        shown(words.everywhere(2))
