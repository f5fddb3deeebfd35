"""Attention: against PyTorch's own, against a loop over heads, and what masks hide."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer_mt.models.attention import causal_mask, padding_mask, scaled_dot_product
from transformer_mt.models.multi_head import MultiHeadAttention, project_memories
from transformer_mt.vocabulary import BOS, EOS, PAD, UNK

D_MODEL, NUM_HEADS = 12, 3  # heads of width 4: no two of the sizes are the same


@pytest.fixture
def attention():
    """Fresh but for its biases, which are fresh at 0."""
    torch.manual_seed(1)
    attention = MultiHeadAttention(D_MODEL, NUM_HEADS).double()
    nn.init.normal_(attention.in_projection.bias)
    nn.init.normal_(attention.out_projection.bias)
    return attention


@pytest.fixture
def pytorch_attention(attention):
    """PyTorch's, with the same weights."""
    theirs = nn.MultiheadAttention(D_MODEL, NUM_HEADS, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(attention.in_projection.weight)
        theirs.in_proj_bias.copy_(attention.in_projection.bias)
        theirs.out_proj.weight.copy_(attention.out_projection.weight)
        theirs.out_proj.bias.copy_(attention.out_projection.bias)
    return theirs


def randn(*shape, seed=2):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_mask(*shape):
    """Each query may see at least one key."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(3)) < 0.5
    mask[..., 0] |= ~mask.any(dim=-1)
    return mask


def test_scaled_dot_product_equals_that_of_pytorch():
    query_BHTK, key_BHSK, value_BHSK = randn(3, 2, 5, 4), randn(3, 2, 7, 4, seed=4), randn(3, 2, 7, 4, seed=5)
    mask_B1TS = random_mask(3, 1, 5, 7)
    mixed_BHTK, _ = scaled_dot_product(query_BHTK, key_BHSK, value_BHSK, mask_B1TS)
    theirs_BHTK = F.scaled_dot_product_attention(query_BHTK, key_BHSK, value_BHSK, attn_mask=mask_B1TS)
    torch.testing.assert_close(mixed_BHTK, theirs_BHTK)


def test_weights_sum_to_one_and_are_zero_where_the_mask_is_false():
    mask_B1TS = random_mask(3, 1, 5, 7)
    _, weights_BHTS = scaled_dot_product(randn(3, 2, 5, 4), randn(3, 2, 7, 4), randn(3, 2, 7, 4), mask_B1TS)
    torch.testing.assert_close(weights_BHTS.sum(dim=-1), torch.ones(3, 2, 5, dtype=torch.float64))
    assert torch.equal(weights_BHTS > 0, mask_B1TS.expand(3, 2, 5, 7))


def test_a_query_that_may_see_one_key_reads_its_value():
    value_BHSK = randn(1, 1, 4, 3)
    for key in range(4):
        only = torch.arange(4) == key
        mixed_BHTK, _ = scaled_dot_product(randn(1, 1, 2, 3), randn(1, 1, 4, 3), value_BHSK, only)
        torch.testing.assert_close(mixed_BHTK, value_BHSK[:, :, key, None].expand(1, 1, 2, 3))


def test_padding_mask_is_true_at_everything_but_padding():
    tokens_BS = torch.tensor([[BOS, UNK, 9, EOS], [9, EOS, PAD, PAD]])
    mask_B11S = padding_mask(tokens_BS)
    assert mask_B11S.shape == (2, 1, 1, 4)
    assert mask_B11S[:, 0, 0].tolist() == [[True, True, True, True], [True, True, False, False]]


def test_causal_mask_is_true_where_the_key_is_not_after_the_query():
    mask_TT = causal_mask(6, torch.device("cpu"))
    assert mask_TT.tolist() == [[key <= query for key in range(6)] for query in range(6)]


def test_self_attention_equals_that_of_pytorch(attention, pytorch_attention):
    x_BTD, causal_TT = randn(3, 6, D_MODEL), causal_mask(6, torch.device("cpu"))
    weights = []
    ours_BTD = attention.attend(*attention.project(x_BTD), causal_TT, weights)
    theirs_BTD, their_weights_BHTS = pytorch_attention(
        x_BTD, x_BTD, x_BTD, attn_mask=~causal_TT, average_attn_weights=False
    )
    torch.testing.assert_close(ours_BTD, theirs_BTD)
    torch.testing.assert_close(weights, [their_weights_BHTS])


def test_cross_attention_equals_that_of_pytorch(attention, pytorch_attention, sources):
    x_BTD, memory_BSD = randn(3, 4, D_MODEL), randn(3, 6, D_MODEL, seed=4)
    source_BS = sources(3, 6)
    weights = []
    ours_BTD = attention.attend(
        attention.project_query(x_BTD), *attention.project_memory(memory_BSD), padding_mask(source_BS), weights
    )
    theirs_BTD, their_weights_BHTS = pytorch_attention(
        x_BTD, memory_BSD, memory_BSD, key_padding_mask=source_BS == PAD, average_attn_weights=False
    )
    torch.testing.assert_close(ours_BTD, theirs_BTD)
    torch.testing.assert_close(weights, [their_weights_BHTS])


def test_multi_head_attention_equals_a_loop_over_heads(attention):
    x_TD, mask_TT = randn(5, D_MODEL), random_mask(5, 5)
    width = D_MODEL // NUM_HEADS
    query_DD, key_DD, value_DD = attention.in_projection.weight.chunk(3)
    query_D, key_D, value_D = attention.in_projection.bias.chunk(3)
    heads = []
    for head in range(NUM_HEADS):
        rows = slice(head * width, (head + 1) * width)
        query_TK = x_TD @ query_DD[rows].T + query_D[rows]
        key_TK = x_TD @ key_DD[rows].T + key_D[rows]
        value_TK = x_TD @ value_DD[rows].T + value_D[rows]
        scores_TT = torch.where(mask_TT, query_TK @ key_TK.T / math.sqrt(width), -math.inf)
        heads.append(scores_TT.softmax(dim=-1) @ value_TK)
    joined_TD = torch.cat(heads, dim=-1)
    expected_TD = joined_TD @ attention.out_projection.weight.T + attention.out_projection.bias
    ours_1TD = attention.attend(*attention.project(x_TD[None]), mask_TT)
    torch.testing.assert_close(ours_1TD[0], expected_TD)


def test_queries_and_memory_projected_apart_are_those_projected_together(attention):
    x_BTD = randn(2, 5, D_MODEL)
    apart = (attention.project_query(x_BTD), *attention.project_memory(x_BTD))
    torch.testing.assert_close(apart, attention.project(x_BTD))


def test_memories_projected_at_once_are_those_projected_apart(attention):
    torch.manual_seed(2)
    others = [MultiHeadAttention(D_MODEL, NUM_HEADS).double() for _ in range(2)]
    attentions, memory_BSD = [attention, *others], randn(2, 5, D_MODEL)
    apart = [each.project_memory(memory_BSD) for each in attentions]
    torch.testing.assert_close(project_memories(attentions, memory_BSD), apart)


def test_dropout_of_the_weights_is_on_in_training_alone_and_not_recorded():
    torch.manual_seed(1)
    attention = MultiHeadAttention(D_MODEL, NUM_HEADS, dropout=0.5).double()
    projected, everything = attention.project(randn(2, 5, D_MODEL)), torch.ones(5, 5, dtype=torch.bool)
    of_training, of_evaluation = [], []
    trained_BTD = attention.train().attend(*projected, everything, of_training)
    evaluated_BTD = attention.eval().attend(*projected, everything, of_evaluation)
    assert not torch.allclose(trained_BTD, evaluated_BTD)
    torch.testing.assert_close(evaluated_BTD, attention.eval().attend(*projected, everything))
    torch.testing.assert_close(of_training, of_evaluation)


def test_each_of_query_key_and_value_fills_the_bounds_of_xavier_uniform():
    """One matrix of 3 D rows has smaller bounds than three of D rows."""
    torch.manual_seed(1)
    d_model = 64
    attention = MultiHeadAttention(d_model, num_heads=4)
    bound = math.sqrt(6 / (d_model + d_model))
    for weight_DD in (*attention.in_projection.weight.split(d_model), attention.out_projection.weight):
        assert 0.99 * bound < weight_DD.abs().max() <= bound
        assert weight_DD.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert not attention.in_projection.bias.any()
    assert not attention.out_projection.bias.any()
