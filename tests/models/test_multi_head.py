"""Multi-head attention: against PyTorch's own, and against a loop over heads."""

import math

import pytest
import torch
from helpers.formulas import SCORES, randn, random_mask, score_of_pair
from torch import nn

from transformer_mt.base.languages import PAD
from transformer_mt.models.attention import MultiHeadAttention, Padded, causal_mask, padding_mask
from transformer_mt.models.attention_weights import recorded
from transformer_mt.models.scores import attention_by
from transformer_mt.models.variants import VariedAttention
from transformer_mt.settings.model_settings import TransformerConfig

D_MODEL, NUM_HEADS = 12, 3  # heads of width 4: no two of the sizes are the same
EVERYTHING = Padded(torch.tensor(True))


@pytest.fixture(params=["plain", "varied"])
def multi_head(request):
    made = fresh()
    if request.param == "varied":
        return made
    plain = MultiHeadAttention(D_MODEL, NUM_HEADS).double()
    plain.load_state_dict(made.state_dict())
    return plain


@pytest.fixture
def pytorch_attention(multi_head):
    """PyTorch's, with the same weights."""
    theirs = nn.MultiheadAttention(D_MODEL, NUM_HEADS, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(multi_head.in_projection.weight)
        theirs.in_proj_bias.copy_(multi_head.in_projection.bias)
        theirs.out_proj.weight.copy_(multi_head.out_projection.weight)
        theirs.out_proj.bias.copy_(multi_head.out_projection.bias)
    return theirs


def varied(d_model, num_heads, **settings):
    attention = MultiHeadAttention(d_model, num_heads)
    VariedAttention.vary(attention, TransformerConfig(d_model=d_model, num_heads=num_heads, **settings))
    return attention


def fresh(num_heads=NUM_HEADS, score="scaled_dot"):
    """But for its biases, which are fresh at 0."""
    torch.manual_seed(1)
    multi_head = varied(D_MODEL, num_heads, attention_score=score).double()
    nn.init.normal_(multi_head.in_projection.bias)
    nn.init.normal_(multi_head.out_projection.bias)
    return multi_head


def test_self_attention_equals_that_of_pytorch(multi_head, pytorch_attention):
    x_BTD, causal_TT = randn(3, 6, D_MODEL), causal_mask(6, torch.device("cpu"))
    with recorded([multi_head]) as weights:
        ours_BTD = multi_head(x_BTD, Padded(causal_TT))
    theirs_BTD, their_weights_BHTS = pytorch_attention(
        x_BTD, x_BTD, x_BTD, attn_mask=~causal_TT, average_attn_weights=False
    )
    torch.testing.assert_close(ours_BTD, theirs_BTD)
    torch.testing.assert_close(weights, [their_weights_BHTS])


def test_cross_attention_equals_that_of_pytorch(multi_head, pytorch_attention, sources):
    x_BTD, memory_BSD = randn(3, 4, D_MODEL), randn(3, 6, D_MODEL, seed=4)
    source_BS = sources(3, 6)
    memory = multi_head.memory(memory_BSD, Padded(padding_mask(source_BS)))
    with recorded([multi_head]) as weights:
        ours_BTD = multi_head.read(x_BTD, memory)
    theirs_BTD, their_weights_BHTS = pytorch_attention(
        x_BTD, memory_BSD, memory_BSD, key_padding_mask=source_BS == PAD, average_attn_weights=False
    )
    torch.testing.assert_close(ours_BTD, theirs_BTD)
    torch.testing.assert_close(weights, [their_weights_BHTS])


@pytest.mark.parametrize("score", SCORES)
def test_it_equals_a_loop_over_heads_whatever_the_score(score):
    """Each head has its own rows of the projections, and its own weights of the score."""
    multi_head = fresh(score=score)
    x_TD, mask_TT = randn(5, D_MODEL), random_mask(5, 5)
    width = D_MODEL // NUM_HEADS
    query_DD, key_DD, value_DD = multi_head.in_projection.weight.chunk(3)
    query_D, key_D, value_D = multi_head.in_projection.bias.chunk(3)
    heads = []
    for head in range(NUM_HEADS):
        rows = slice(head * width, (head + 1) * width)
        query_TK = x_TD @ query_DD[rows].T + query_D[rows]
        key_TK = x_TD @ key_DD[rows].T + key_D[rows]
        value_TK = x_TD @ value_DD[rows].T + value_D[rows]
        scores_TT = torch.empty(5, 5, dtype=torch.float64)
        for t in range(5):
            for s in range(5):
                scores_TT[t, s] = score_of_pair(score, multi_head.score, head, query_TK[t], key_TK, s)
        heads.append(scores_TT.masked_fill(~mask_TT, -math.inf).softmax(dim=-1) @ value_TK)
    joined_TD = torch.cat(heads, dim=-1)
    expected_TD = joined_TD @ multi_head.out_projection.weight.T + multi_head.out_projection.bias
    ours_1TD = multi_head(x_TD[None], Padded(mask_TT))
    torch.testing.assert_close(ours_1TD[0], expected_TD)


@pytest.mark.parametrize("score", SCORES)
def test_one_head_of_the_whole_width_is_attention_without_heads(score):
    multi_head, x_BTD, mask_TT = fresh(num_heads=1, score=score), randn(2, 5, D_MODEL), random_mask(5, 5)
    query_B1TD, key_B1TD, value_B1TD = multi_head.in_projection(x_BTD)[:, None].chunk(3, dim=-1)
    prepared = multi_head.score.prepare(key_B1TD)
    mixed_B1TD, weights_B1TS = attention_by(multi_head.score, query_B1TD, prepared, value_B1TD, mask_TT)
    with recorded([multi_head]) as weights:
        ours_BTD = multi_head(x_BTD, Padded(mask_TT))
    torch.testing.assert_close(ours_BTD, multi_head.out_projection(mixed_B1TD[:, 0]))
    torch.testing.assert_close(weights, [weights_B1TS])


@pytest.mark.parametrize("num_heads", [1, 8])
@pytest.mark.parametrize("score", SCORES)
def test_shapes_of_five_sentences_of_ten_positions(score, num_heads):
    multi_head, x_BTD = varied(64, num_heads, attention_score=score), torch.randn(5, 10, 64)
    with recorded([multi_head]) as weights:
        output_BTD = multi_head(x_BTD, EVERYTHING)
    weights_BTS = weights[0].mean(dim=1)
    assert output_BTD.shape == (5, 10, 64)
    assert weights_BTS.shape == (5, 10, 10)
    torch.testing.assert_close(weights_BTS.sum(dim=-1), torch.ones(5, 10))


def test_queries_and_memory_projected_apart_are_those_projected_together(multi_head):
    x_BTD = randn(2, 5, D_MODEL)
    torch.testing.assert_close(
        multi_head.read(x_BTD, multi_head.memory(x_BTD, EVERYTHING)), multi_head(x_BTD, EVERYTHING)
    )


def test_dropout_of_the_weights_is_on_in_training_alone_and_not_recorded():
    torch.manual_seed(1)
    multi_head = varied(D_MODEL, NUM_HEADS, attention_dropout=0.5).double()
    x_BTD = randn(2, 5, D_MODEL)
    with recorded([multi_head]) as weights:
        trained_BTD = multi_head.train()(x_BTD, EVERYTHING)
        evaluated_BTD = multi_head.eval()(x_BTD, EVERYTHING)
    assert not torch.allclose(trained_BTD, evaluated_BTD)
    torch.testing.assert_close(evaluated_BTD, multi_head.eval()(x_BTD, EVERYTHING))
    of_training, of_evaluation = weights
    torch.testing.assert_close(of_training, of_evaluation)


def test_each_of_query_key_and_value_fills_the_bounds_of_xavier_uniform():
    """One matrix of 3 D rows has smaller bounds than three of D rows."""
    torch.manual_seed(1)
    d_model = 64
    multi_head = MultiHeadAttention(d_model, num_heads=4)
    bound = math.sqrt(6 / (d_model + d_model))
    for weight_DD in (*multi_head.in_projection.weight.split(d_model), multi_head.out_projection.weight):
        assert 0.99 * bound < weight_DD.abs().max() <= bound
        assert weight_DD.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert not multi_head.in_projection.bias.any()
    assert not multi_head.out_projection.bias.any()
