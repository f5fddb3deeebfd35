"""Attention to near words, block by block, is attention with a mask of all queries by all keys, at a lower cost."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from transformer_mt.base.languages import PAD
from transformer_mt.kernels.packed_attention import BLOCK, Near
from transformer_mt.models.attention import attention
from transformer_mt.models.scores import attention_by, build_score
from transformer_mt.settings.model_settings import ScoreChoice

both_ways = pytest.mark.parametrize("causal", [False, True])


def plainly(*arguments):
    """Attention as the model computes it of padded rows."""
    return attention(*arguments)[0]


def inputs(length, lengths, seed=1):
    """Queries, keys and values BHTK of rows of these lengths, which require gradients; and the ids BT."""
    generator = torch.Generator().manual_seed(seed)
    parts = torch.randn(3, len(lengths), length, 2, 4, dtype=torch.float64, generator=generator)
    tokens_BT = torch.tensor([[9] * real + [PAD] * (length - real) for real in lengths])
    return [part.transpose(1, 2).requires_grad_() for part in parts], tokens_BT


@both_ways
@pytest.mark.parametrize("window", [1, 2, 5, 31, 33, 200])
@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 100])
def test_it_is_attention_with_the_whole_mask_and_so_are_its_gradients(length, window, causal):
    """Of real words, whatever the padding; of a row of a single word, too."""
    lengths = [length, 1, max(1, length // 2)]
    arguments, tokens_BT = inputs(length, lengths)
    near = Near(tokens_BT != PAD, window, causal)
    ours_BHTK = near.attend(*arguments, plainly)
    theirs_BHTK = F.scaled_dot_product_attention(*arguments, attn_mask=near.whole())
    real_BHTK = (tokens_BT != PAD)[:, None, :, None].expand_as(ours_BHTK)
    torch.testing.assert_close(ours_BHTK[real_BHTK], theirs_BHTK[real_BHTK])
    weights = torch.randn(int(real_BHTK.sum()), dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    ours, theirs = (
        torch.autograd.grad((mixed_BHTK[real_BHTK] * weights).sum(), arguments)
        for mixed_BHTK in (ours_BHTK, theirs_BHTK)
    )
    torch.testing.assert_close(ours, theirs)


@both_ways
def test_padding_far_from_any_word_is_finite_and_so_are_gradients(causal):
    arguments, tokens_BT = inputs(200, [3, 200])
    mixed_BHTK = Near(tokens_BT != PAD, 2, causal).attend(*arguments, plainly)
    assert mixed_BHTK.isfinite().all()
    for gradient in torch.autograd.grad(mixed_BHTK.sum(), arguments):
        assert gradient.isfinite().all()


@both_ways
@pytest.mark.parametrize("window", [1, 2, 5, 6, 100])
def test_the_whole_mask_is_true_at_what_is_near_and_no_padding_and_at_the_query_itself(window, causal):
    lengths = [6, 1, 3]
    tokens_BT = torch.tensor([[9] * length + [PAD] * (6 - length) for length in lengths])
    furthest = 0 if causal else window
    expected = [
        [
            [key == query or (key < length and -window <= key - query <= furthest) for key in range(6)]
            for query in range(6)
        ]
        for length in lengths
    ]
    mask = Near(tokens_BT != PAD, window, causal)
    assert mask.whole()[:, 0].tolist() == expected


@both_ways
def test_operations_grow_with_the_length_and_not_with_its_square(causal):
    """r n d, with a block beside the window: 2 products of 2 n (block + window) d."""

    def counted(length):
        arguments, tokens_BT = inputs(length, [length])
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            Near(tokens_BT != PAD, 8, causal).attend(*arguments, plainly)
        return counter.get_total_flops()

    width = 8  # of the two heads together
    seen = BLOCK + (8 if causal else 16)
    for length in (64, 256, 2048):
        assert counted(length) == 2 * 2 * length * seen * width
    assert counted(2048) < 2 * 2 * 2048**2 * width / 40, "a small part of what all pairs would be"


@both_ways
@pytest.mark.parametrize("name", ["dot", "general", "additive", "concat"])
def test_any_score_of_near_words_costs_as_much_for_each_word_however_long_the_sentence(name, causal):
    torch.manual_seed(1)
    score = build_score(ScoreChoice(name), 2, 4, 4).double()

    def scored(query_BHTK, key_BHSK, value_BHSK, mask):
        return attention_by(score, query_BHTK, key_BHSK, value_BHSK, mask)[0]

    def counted(length):
        (query_BHTK, key_BHTK, value_BHTK), tokens_BT = inputs(length, [length])
        near = Near(tokens_BT != PAD, 8, causal)
        prepared = score.prepare(key_BHTK)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            ours_BHTK = near.attend(query_BHTK, prepared, value_BHTK, scored)
        torch.testing.assert_close(ours_BHTK, scored(query_BHTK, prepared, value_BHTK, near.whole()))
        return counter.get_total_flops()

    assert counted(1024) == 8 * counted(128)


def test_dropout_is_of_the_weights():
    (query_BHTK, key_BHTK, _), tokens_BT = inputs(50, [50])
    torch.manual_seed(1)
    ones_BHTK, near = torch.ones_like(query_BHTK), Near(tokens_BT != PAD, 8, False)

    def dropped(query_BHTK, key_BHSK, value_BHSK, mask):
        _, weights_BHTS = attention(query_BHTK, key_BHSK, value_BHSK, mask)
        return torch.nn.functional.dropout(weights_BHTS, 0.5) @ value_BHSK

    mixed_BHTK = near.attend(query_BHTK, key_BHTK, ones_BHTK, dropped)
    assert mixed_BHTK.std() > 0.1 and 0.8 < mixed_BHTK.mean() < 1.2
    torch.testing.assert_close(near.attend(query_BHTK, key_BHTK, ones_BHTK, plainly), ones_BHTK)
