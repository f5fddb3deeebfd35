"""Attention and its scores: against loops over single numbers, PyTorch's own and an example worked by hand; masks."""

import pytest
import torch
from helpers.formulas import SCORES, attention_by_loops, new_score, randn, random_mask, scores_by_loops
from helpers.messages import message
from torch.nn import functional as F

from transformer_mt.base.errors import TranslationError
from transformer_mt.base.languages import BOS, EOS, PAD, UNK
from transformer_mt.models.attention import attention, causal_mask, padding_mask
from transformer_mt.models.scores import (
    Additive,
    Dot,
    FixedLengthAttention,
    Scaled,
    ScaledDot,
    attention_by,
    build_score,
)
from transformer_mt.settings.model_settings import SCALED_DOT, ScoreChoice, TransformerConfig

all_scores = pytest.mark.parametrize("name", [*SCORES, "biased_additive", "location", "fixed_concat"])


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def heads_of(name):
    return 1 if name in ("location", "fixed_concat") else 3


def inputs(name, num_queries=5, num_keys=7, query_width=4, key_width=4):
    """Queries, keys and values of other widths than theirs; the score that is for them."""
    heads = heads_of(name)
    query_BHTK, key_BHSK = randn(2, heads, num_queries, query_width), randn(2, heads, num_keys, key_width, seed=4)
    return query_BHTK, key_BHSK, randn(2, heads, num_keys, 6, seed=5), new_score(name, heads, query_width, key_width)


def attend(query_BHTK, key_BHSK, value_BHSK, mask, score):
    """Attention to keys that the score has prepared."""
    return attention_by(score, query_BHTK, score.prepare(key_BHSK), value_BHSK, mask)


# Scores


@all_scores
def test_scores_are_their_formula_for_each_pair(name):
    """Whatever the lengths, and the widths; a product of both needs equal ones."""
    for query_width, key_width in [(4, 4)] if name in ("dot", "scaled_dot") else [(4, 4), (3, 5), (5, 1)]:
        for num_queries, num_keys in [(1, 1), (1, 7), (5, 1), (5, 7), (6, 6)]:
            query_BHTK, key_BHSK, _, score = inputs(name, num_queries, num_keys, query_width, key_width)
            scores_BHTS = score(query_BHTK, score.prepare(key_BHSK))
            torch.testing.assert_close(scores_BHTS, scores_by_loops(name, score, query_BHTK, key_BHSK))


@all_scores
def test_a_scaled_score_is_divided_by_the_root_of_the_width_of_the_keys(name):
    for query_width, key_width in [(4, 4)] if name in ("dot", "scaled_dot") else [(4, 4), (3, 5)]:
        query_BHTK, key_BHSK, _, score = inputs(name, 5, 7, query_width, key_width)
        scaled = Scaled(score, key_width)
        expected = score(query_BHTK, score.prepare(key_BHSK)) / key_width**0.5
        torch.testing.assert_close(scaled(query_BHTK, scaled.prepare(key_BHSK)), expected)
        assert scaled.reads_last_key == (name == "fixed_concat")


def test_the_settings_choose_the_score():
    """A dot product that is scaled is the score for which there are kernels."""
    assert TransformerConfig(attention_score="dot", attention_scale=True).score == SCALED_DOT
    assert TransformerConfig().score == SCALED_DOT
    assert isinstance(build_score(SCALED_DOT, 3, 4, 4), ScaledDot)
    choice = TransformerConfig(attention_score="additive", attention_scale=True, additive_bias=True).score
    score = build_score(choice, 3, 4, 4)
    assert isinstance(score, Scaled) and isinstance(score.score, Additive)
    assert score.score.bias_H1A.shape == (3, 1, 4) and score.root == 2
    assert build_score(ScoreChoice("additive"), 3, 4, 4).bias_H1A is None


@all_scores
def test_attention_is_the_mean_of_the_values_that_the_mask_leaves_weighted_by_the_softmax_of_their_scores(name):
    query_BHTK, key_BHSK, value_BHSK, score = inputs(name)
    for mask in (random_mask(2, 1, 5, 7), random_mask(2, 1, 1, 7), random_mask(5, 7), torch.tensor(True)):
        expected = attention_by_loops(name, score, query_BHTK, key_BHSK, value_BHSK, mask)
        torch.testing.assert_close(attend(query_BHTK, key_BHSK, value_BHSK, mask, score), expected)


@all_scores
def test_masks_are_the_same_whatever_the_score(name):
    """Weights are 0 where the mask is false and nowhere else, rows sum to one, and what is hidden has no effect."""
    query_BHTK, key_BHSK, value_BHSK, score = inputs(name)
    mask_B1TS = random_mask(2, 1, 5, 7)
    mask_B1TS[..., 2], mask_B1TS[..., 3] = False, True
    mixed_BHTK, weights_BHTS = attend(query_BHTK, key_BHSK, value_BHSK, mask_B1TS, score)
    assert torch.equal(weights_BHTS > 0, mask_B1TS.expand_as(weights_BHTS))
    torch.testing.assert_close(weights_BHTS.sum(dim=-1), torch.ones_like(weights_BHTS[..., 0]))
    key_BHSK[:, :, 2], value_BHSK[:, :, 2] = 7.0, 8.0
    others = attend(query_BHTK, key_BHSK, value_BHSK, mask_B1TS, score)
    torch.testing.assert_close(others, (mixed_BHTK, weights_BHTS))


@all_scores
def test_a_query_that_may_see_one_key_reads_its_value(name):
    query_BHTK, key_BHSK, value_BHSK, score = inputs(name, num_keys=4)
    for key in range(4):
        only = torch.arange(4) == key
        mixed_BHTK, _ = attend(query_BHTK, key_BHSK, value_BHSK, only, score)
        torch.testing.assert_close(mixed_BHTK, value_BHSK[:, :, key, None].expand_as(mixed_BHTK))


@pytest.mark.parametrize("name", SCORES)
def test_of_a_linear_concat_alone_every_query_has_the_same_weights(name):
    query_BHTK, key_BHSK, value_BHSK, score = inputs(name)
    _, weights_BHTS = attend(query_BHTK, key_BHSK, value_BHSK, torch.tensor(True), score)
    spread = (weights_BHTS - weights_BHTS[:, :, :1]).abs().max()
    assert spread < 1e-12 if name == "concat" else spread > 1e-3


def test_scaled_dot_product_equals_that_of_pytorch():
    query_BHTK, key_BHSK, value_BHSK, score = inputs("scaled_dot")
    mask_B1TS = random_mask(2, 1, 5, 7)
    theirs_BHTK = F.scaled_dot_product_attention(query_BHTK, key_BHSK, value_BHSK, attn_mask=mask_B1TS)
    plain = attention(query_BHTK, key_BHSK, value_BHSK, mask_B1TS)
    torch.testing.assert_close(plain[0], theirs_BHTK)
    torch.testing.assert_close(attend(query_BHTK, key_BHSK, value_BHSK, mask_B1TS, score), plain)


def test_an_example_worked_by_hand():
    """Dot scores of two states of a decoder and three of an encoder, to three decimals."""
    encoder_11SK = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])[None, None]
    decoder_11TK = torch.tensor([[0.8, 0.2], [0.1, 0.9]])[None, None]
    context_11TK, weights_11TS = attention_by(Dot(), decoder_11TK, encoder_11SK, encoder_11SK, torch.tensor(True))
    scores_11TS = Dot()(decoder_11TK, encoder_11SK)
    to_three = {"rtol": 0, "atol": 0.0005}
    expected = [[0.8, 0.2, 1.0], [0.1, 0.9, 1.0]]
    torch.testing.assert_close(scores_11TS[0, 0], torch.tensor(expected), rtol=0, atol=1e-6)
    expected = [[0.361, 0.198, 0.441], [0.176, 0.391, 0.433]]
    torch.testing.assert_close(weights_11TS[0, 0], torch.tensor(expected), **to_three)
    torch.testing.assert_close(context_11TK[0, 0], torch.tensor([[0.802, 0.639], [0.609, 0.824]]), **to_three)


# Of a fixed length


@pytest.mark.parametrize(("name", "numbers_of_a_key"), [("fixed_concat", 1), ("location", 0)])
def test_a_fixed_length_is_not_exceeded(name, numbers_of_a_key):
    score = new_score(name, 1, 4, 4, num_positions=6)
    assert score.prepare(randn(2, 1, 6, 4)).shape == (2, 1, 6, numbers_of_a_key)
    with pytest.raises(TranslationError, match=message("more-than-attention-positions", "7", "6")):
        score.prepare(randn(2, 1, 7, 4))


def test_fixed_length_attention_has_the_shapes_of_the_tutorials():
    layer = FixedLengthAttention(query_width=32, key_width=32, num_positions=32, value_width=64, output_width=64)
    output_B1O, weights_BS = layer(torch.randn(1, 1, 32), torch.randn(1, 1, 32), torch.randn(1, 32, 64))
    assert output_B1O.shape == (1, 1, 64)
    assert weights_BS.shape == (1, 32)
    torch.testing.assert_close(weights_BS.sum(dim=1), torch.ones(1))


def test_fixed_length_attention_is_its_formula_for_each_sentence():
    torch.manual_seed(1)
    layer = FixedLengthAttention(query_width=3, key_width=2, num_positions=6, value_width=4, output_width=5).double()
    query_BTQ, key_BUK, value_BSV = randn(2, 4, 3), randn(2, 5, 2, seed=3), randn(2, 6, 4, seed=4)
    output_B1O, weights_BS = layer(query_BTQ, key_BUK, value_BSV)
    for b in range(2):
        weights_S = layer.score.joined(torch.cat([query_BTQ[b, -1], key_BUK[b, -1]])).softmax(dim=0)
        read_V = sum(weights_S[s] * value_BSV[b, s] for s in range(6))
        output_O = layer.out_projection(torch.cat([query_BTQ[b, -1], read_V]))
        torch.testing.assert_close(weights_BS[b], weights_S)
        torch.testing.assert_close(output_B1O[b, 0], output_O)
    with pytest.raises(TranslationError, match=message("more-than-attention-positions", "7")):
        layer(query_BTQ, key_BUK, randn(2, 7, 4))


# Masks


def test_padding_mask_is_true_at_everything_but_padding():
    tokens_BS = torch.tensor([[BOS, UNK, 9, EOS], [9, EOS, PAD, PAD]])
    mask_B11S = padding_mask(tokens_BS)
    assert mask_B11S.shape == (2, 1, 1, 4)
    assert mask_B11S[:, 0, 0].tolist() == [[True, True, True, True], [True, True, False, False]]


def test_causal_mask_is_true_where_the_key_is_not_after_the_query():
    mask_TT = causal_mask(6, torch.device("cpu"))
    assert mask_TT.tolist() == [[key <= query for key in range(6)] for query in range(6)]
