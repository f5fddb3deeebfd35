"""However sentences lie: what a query reads of what it may see is the plain formula of attention."""

import pytest
import torch
from helpers.formulas import randn
from helpers.packing import pack

from transformer_mt.base.languages import PAD
from transformer_mt.models.attention import attention
from transformer_mt.models.layouts import Sentences, unpadded, whole_mask

H, K = 3, 4


def plainly(*arguments):
    return attention(*arguments)[0]


LAYOUTS = {"padded": Sentences, "packed": pack, "unpadded": unpadded}


@pytest.mark.parametrize(
    ("lie", "window"), [("padded", 0), ("padded", 2), ("packed", 0), ("packed", 2), ("unpadded", 0)]
)
def test_it_is_the_plain_formula_with_a_mask_of_booleans(lie, window, sources):
    tokens_BT = sources(5, 7)
    here, rows = LAYOUTS[lie](tokens_BT), Sentences(tokens_BT)
    inputs = [randn(5, H, 7, K, seed=seed) for seed in (2, 3, 4)]
    real_BT = tokens_BT != PAD
    for see, in_rows in (
        (here.everywhere(window), rows.everywhere(window)),
        (here.backwards(window), rows.backwards(window)),
        (here.across(here), rows.across(rows)),
    ):
        expected_NHK = plainly(*inputs, whole_mask(in_rows)).transpose(1, 2)[real_BT]
        if here.tokens.dim() == 2:
            mixed_BHTK = see.attend(*inputs, plainly)
            torch.testing.assert_close(mixed_BHTK.transpose(1, 2)[real_BT], expected_NHK)
            continue
        packed = [x.transpose(1, 2)[real_BT] for x in inputs]
        num_rows = len(here.tokens)  # some of them are of dummies
        packed = [torch.cat([x_NHK, x_NHK.new_ones(num_rows - len(x_NHK), H, K)]).transpose(0, 1) for x_NHK in packed]
        mixed_NHK = see.attend(*packed, plainly).transpose(0, 1)
        torch.testing.assert_close(mixed_NHK[: int(real_BT.sum())], expected_NHK)


@pytest.mark.parametrize("settings", [{"attention_score": "dot"}, {"attention_dropout": 0.1}])
def test_other_scores_and_dropout_of_the_weights_need_padded_rows(settings, tiny_model, sources):
    model = tiny_model(**settings)
    with pytest.raises(AssertionError, match="padded rows"):
        model.features(unpadded(sources(2, 3)), unpadded(sources(2, 3)))
