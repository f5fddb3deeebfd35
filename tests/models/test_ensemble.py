"""Several models as one: the mean of their probabilities, in teacher forcing, step by step and in search."""

import itertools

import pytest
import torch
from helpers.plain_search import (
    CAPS,
    VOCAB_SIZE,
    assert_same,
    beam_search,
    greedy,
    plain_beam_search,
    plain_greedy,
    teacher_forced,
)

from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.sampling import sample
from transformer_mt.models.ensemble import Ensemble
from transformer_mt.settings.search_settings import DecodingConfig


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def models(tiny_model, tiny_rnn):
    """Of three shapes and two architectures, which share the vocabulary alone."""
    return [
        tiny_model(VOCAB_SIZE, 1),
        tiny_model(VOCAB_SIZE, 2, norm="pre", d_model=24, num_heads=3, decoder_layers=1),
        tiny_rnn(VOCAB_SIZE, 3, tied_embeddings="none", output_bias=True),
    ]


def assert_close(ours, theirs):
    """Models in fp64 differ in the last digits only."""
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_probabilities_are_the_mean_of_the_models(models, sources, decoder_inputs):
    source_BS, decoder_input_BT = sources(5, 6, VOCAB_SIZE), decoder_inputs(5, 7, VOCAB_SIZE)
    probs = [model(source_BS, decoder_input_BT).softmax(dim=-1) for model in models]
    assert_close(Ensemble(models)(source_BS, decoder_input_BT).exp(), sum(probs) / 3)


def test_a_model_with_itself_is_the_model(models, sources, decoder_inputs):
    source_BS, decoder_input_BT = sources(5, 6, VOCAB_SIZE), decoder_inputs(5, 7, VOCAB_SIZE)
    for model, count in itertools.product(models, (1, 2, 3)):
        together_BTV = Ensemble([model] * count)(source_BS, decoder_input_BT)
        assert_close(together_BTV, model(source_BS, decoder_input_BT).log_softmax(dim=-1))


def test_their_order_does_not_matter(models, sources, decoder_inputs):
    source_BS, decoder_input_BT = sources(5, 6, VOCAB_SIZE), decoder_inputs(5, 7, VOCAB_SIZE)
    one, *others = (Ensemble(list(order))(source_BS, decoder_input_BT) for order in itertools.permutations(models))
    for other in others:
        assert_close(other, one)


def test_a_model_that_is_sure_of_another_piece_does_not_make_one_impossible(tiny_model, sources, decoder_inputs):
    """As a mean of logarithms would."""
    source_BS, decoder_input_BT = sources(5, 6, VOCAB_SIZE), decoder_inputs(5, 7, VOCAB_SIZE)
    usual, sure = tiny_model(VOCAB_SIZE, 1), tiny_model(VOCAB_SIZE, 2)
    sure.output_VD.mul_(1e4)
    probs_BTV = Ensemble([usual, sure])(source_BS, decoder_input_BT).exp()
    assert probs_BTV.isfinite().all()
    assert (probs_BTV >= usual(source_BS, decoder_input_BT).softmax(dim=-1) / 2 - 1e-9).all()


def test_stepping_is_teacher_forcing(models, sources, decoder_inputs):
    """Also after hypotheses went on from others, and sentences left."""
    ensemble = Ensemble(models)
    source_BS = sources(4, 6, VOCAB_SIZE)
    tokens_BWT = decoder_inputs(8, 9, VOCAB_SIZE).view(4, 2, 9)
    parent_BW, kept = torch.tensor([[1, 0], [0, 0], [1, 1], [0, 1]]), torch.tensor([3, 0, 2])
    state = ensemble.start(source_BS, width=2)
    for t in range(9):
        if t == 4:
            state = state.follow(parent_BW)
            tokens_BWT[:, :, :4] = tokens_BWT[:, :, :4].gather(1, parent_BW[..., None].expand(-1, -1, 4))
        if t == 6:
            state, tokens_BWT, source_BS = state.keep(kept), tokens_BWT[kept], source_BS[kept]
        logits_BWV, state = ensemble.step(tokens_BWT[:, :, t], state)
        for w in range(2):
            # A target that ended has padding after it, which no search goes on from.
            for b in (tokens_BWT[:, w, : t + 1] != 0).all(dim=-1).nonzero()[:, 0].tolist():
                forced_1TV = ensemble(source_BS[b : b + 1], tokens_BWT[b : b + 1, w, : t + 1])
                assert_close(logits_BWV[b, w], forced_1TV[0, -1])


@pytest.mark.thorough
def test_searches_find_what_plain_ones_find_and_scores_are_those_of_teacher_forcing(models, sources):
    ensemble, source_BS = Ensemble(models), sources(len(CAPS), 6, VOCAB_SIZE)
    one_each, beams = greedy(ensemble, source_BS, CAPS), beam_search(ensemble, source_BS, 3, 0.6, CAPS)
    for best, hypotheses, source_S, cap in zip(one_each, beams, source_BS, CAPS, strict=True):
        assert best.tokens == plain_greedy(ensemble, source_S[None], cap)
        expected = plain_beam_search(ensemble, source_S[None], 3, 0.6, cap)
        assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for tokens, _ in expected]
        for hypothesis in (best, *hypotheses):
            log_prob = teacher_forced(ensemble, source_S[None], hypothesis.tokens)
            assert hypothesis.log_prob == pytest.approx(log_prob, rel=1e-5)


def test_a_model_with_itself_finds_what_the_model_finds(models, sources):
    source_BS = sources(len(CAPS), 6, VOCAB_SIZE)
    constraints = Constraints(CAPS, [[] for _ in CAPS])
    decoding = DecodingConfig(sampling=True, n_best=3)
    for model in models:
        twice = Ensemble([model, model])
        assert_same(greedy(twice, source_BS, CAPS), greedy(model, source_BS, CAPS))
        searches = [
            (beam_search(one, source_BS, 3, 0.6, CAPS), sample(one, source_BS, CAPS, constraints, decoding))
            for one in (twice, model)
        ]
        for found, expected in zip(*searches, strict=True):
            for ours, theirs in zip(found, expected, strict=True):
                assert_same(ours, theirs)


def test_half_precision_is_combined_in_single(models, sources, decoder_inputs):
    source_BS, decoder_input_BT = sources(5, 6, VOCAB_SIZE), decoder_inputs(5, 7, VOCAB_SIZE)
    model = models[0].bfloat16()
    together_BTV = Ensemble([model, model])(source_BS, decoder_input_BT)
    alone_BTV = model(source_BS, decoder_input_BT).float().log_softmax(dim=-1)
    torch.testing.assert_close(together_BTV, alone_BTV, rtol=1e-6, atol=1e-6)


def test_other_vocabularies_are_refused(tiny_model):
    with pytest.raises(AssertionError, match="one vocabulary"):
        Ensemble([tiny_model(8), tiny_model(9)])
