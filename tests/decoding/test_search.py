"""Greedy and beam search: against slow and obvious ones, and scores against teacher forcing."""

import itertools
import math

import pytest
import torch
from helpers.plain_search import (
    CAPS,
    VOCAB_SIZE,
    assert_same,
    assert_well_formed,
    beam_search,
    every_translation,
    greedy,
    penalised,
    plain_beam_search,
    plain_greedy,
    teacher_forced,
)
from helpers.thorough import pairwise, thorough

from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.decoding import sampling, search
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.engine import Sentence
from transformer_mt.settings.search_settings import DecodingConfig

both_norms = pytest.mark.parametrize("norm", ["post", *thorough("pre")])
alphas = pytest.mark.parametrize("alpha", [*thorough(0.0), 0.6, *thorough(2.0)])

SEEDS = range(4)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def searches(tiny_model, sources):
    """A function that gives models of one norm, each with eight sources; translations may be as long as CAPS."""

    def build(norm):
        for seed in SEEDS:
            yield tiny_model(VOCAB_SIZE, seed, norm=norm), sources(len(CAPS), 6, VOCAB_SIZE, seed)

    return build


# Lengths


def test_a_translation_may_be_so_much_longer_than_its_own_source_up_to_the_positions():
    sentences = [Sentence([4, EOS]), Sentence([4, 5, 6, EOS]), Sentence([EOS])]
    assert [sentence.max_length(5, max_positions=100) for sentence in sentences] == [7, 9, 6]
    assert [sentence.max_length(5, max_positions=7) for sentence in sentences] == [7, 7, 6]
    assert [sentence.max_length(0, max_positions=100) for sentence in sentences] == [2, 4, 1]


# Greedy


@both_norms
def test_greedy_takes_the_most_probable_word_at_each_position(norm, searches):
    for model, source_BS in searches(norm):
        found = greedy(model, source_BS, CAPS)
        for hypothesis, source_S, cap in zip(found, source_BS, CAPS, strict=True):
            assert hypothesis.tokens == plain_greedy(model, source_S[None], cap)


@both_norms
@alphas
def test_scores_of_greedy_are_those_of_teacher_forcing(norm, alpha, searches):
    for model, source_BS in searches(norm):
        found = greedy(model, source_BS, CAPS, alpha)
        for hypothesis, source_S, cap in zip(found, source_BS, CAPS, strict=True):
            assert_well_formed(hypothesis.tokens, cap)
            log_prob = teacher_forced(model, source_S[None], hypothesis.tokens)
            assert hypothesis.log_prob == pytest.approx(log_prob, rel=1e-5)
            assert hypothesis.score == pytest.approx(penalised(log_prob, len(hypothesis.tokens), alpha), rel=1e-5)


@both_norms
def test_greedy_translates_a_sentence_as_if_it_were_alone(norm, searches):
    for model, source_BS in searches(norm):
        together = greedy(model, source_BS, CAPS)
        for hypothesis, source_S, cap in zip(together, source_BS, CAPS, strict=True):
            source_1S = source_S[None, source_S != PAD]
            assert_same([hypothesis], greedy(model, source_1S, [cap]))


@both_norms
def test_without_scores_greedy_finds_the_same_words(norm, searches):
    for model, source_BS in searches(norm):
        decoding = DecodingConfig(beam_size=1)
        found = sampling.greedy(model, source_BS, Constraints(CAPS), decoding, scores=False)
        assert [h.tokens for h in found] == [h.tokens for h in greedy(model, source_BS, CAPS)]
        assert all(math.isnan(h.score) and math.isnan(h.log_prob) for h in found)


def test_some_translations_end_of_themselves_and_some_have_to(searches):
    """So that the tests here hold of both, and sentences leave the batch at different positions."""
    found = []
    for model, source_BS in searches("post"):
        found += [(len(h.tokens), cap) for h, cap in zip(greedy(model, source_BS, CAPS), CAPS, strict=True)]
    assert sum(length < cap for length, cap in found) >= 5
    assert sum(length == cap > 1 for length, cap in found) >= 5
    assert len({length for length, _ in found}) >= 4


# Beam search


@both_norms
def test_a_beam_of_one_is_greedy(norm, searches):
    for model, source_BS in searches(norm):
        found = beam_search(model, source_BS, 1, 0.0, CAPS)
        assert_same([hypothesis for (hypothesis,) in found], greedy(model, source_BS, CAPS))


@both_norms
@alphas
def test_a_beam_of_everything_finds_the_best_of_everything(norm, alpha, tiny_model, sources):
    cap = 4
    everything = list(every_translation(cap))
    for seed in SEEDS:
        model, source_BS = tiny_model(VOCAB_SIZE, seed, norm=norm), sources(2, 4, VOCAB_SIZE, seed)
        found = beam_search(model, source_BS, len(everything), alpha, [cap, cap])
        for hypotheses, source_S in zip(found, source_BS, strict=True):
            scores = {}
            for length, group in itertools.groupby(everything, key=len):
                tokens_BT = torch.tensor(list(group))
                decoder_input_BT = torch.cat([torch.full((len(tokens_BT), 1), BOS), tokens_BT[:, :-1]], dim=1)
                log_probs_BTV = model(source_S.expand(len(tokens_BT), -1), decoder_input_BT).log_softmax(dim=-1)
                log_probs_B = log_probs_BTV.gather(2, tokens_BT[..., None]).sum(dim=(1, 2))
                for tokens, log_prob in zip(tokens_BT.tolist(), log_probs_B.tolist(), strict=True):
                    scores[tuple(tokens)] = penalised(log_prob, length, alpha)
            best = max(scores, key=scores.__getitem__)
            assert tuple(hypotheses[0].tokens) == best
            assert hypotheses[0].score == pytest.approx(scores[best], rel=1e-5)


@pairwise(together=1, norm=["post", "pre"], alpha=[0.0, 0.6, 2.0], width=[1, 2, 4], patience=[0.0, 1.0])
def test_beam_search_equals_a_search_with_lists(norm, alpha, width, patience, searches):
    for model, source_BS in searches(norm):
        found = beam_search(model, source_BS, width, alpha, CAPS, patience=patience)
        for hypotheses, source_S, cap in zip(found, source_BS, CAPS, strict=True):
            expected = plain_beam_search(model, source_S[None], width, alpha, cap, patience)
            assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for tokens, _ in expected]
            scores = [score for _, score in expected]
            assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(scores, rel=1e-5)


@both_norms
@alphas
def test_the_score_of_every_hypothesis_is_that_of_teacher_forcing(norm, alpha, searches):
    for model, source_BS in searches(norm):
        for hypotheses, source_S in zip(beam_search(model, source_BS, 5, alpha, CAPS), source_BS, strict=True):
            for hypothesis in hypotheses:
                log_prob = teacher_forced(model, source_S[None], hypothesis.tokens)
                assert hypothesis.log_prob == pytest.approx(log_prob, rel=1e-5)
                assert hypothesis.score == pytest.approx(penalised(log_prob, len(hypothesis.tokens), alpha), rel=1e-5)


@pytest.mark.thorough
@both_norms
@alphas
@pytest.mark.parametrize(("n_best", "patience"), [(4, 0.0), (1, 1.0)])
def test_the_hypotheses_of_a_sentence_do_not_depend_on_its_batch(norm, alpha, n_best, patience, searches):
    for model, source_BS in searches(norm):
        together = beam_search(model, source_BS, 4, alpha, CAPS, n_best, patience)
        for hypotheses, source_S, cap in zip(together, source_BS, CAPS, strict=True):
            (alone,) = beam_search(model, source_S[None, source_S != PAD], 4, alpha, [cap], n_best, patience)
            assert_same(hypotheses, alone)


@pytest.mark.thorough
def test_nor_does_its_patience(tiny_model, sources):
    """What is followed for the sake of another sentence alone counts for nothing."""
    cap = 24
    for seed in range(6):
        model, source_BS = tiny_model(VOCAB_SIZE, seed), sources(8, 8, VOCAB_SIZE, seed)
        together = beam_search(model, source_BS, 6, 2.0, [cap] * 8, n_best=1, patience=1.0)
        for hypotheses, source_S in zip(together, source_BS, strict=True):
            (alone,) = beam_search(model, source_S[None, source_S != PAD], 6, 2.0, [cap], n_best=1, patience=1.0)
            assert_same(hypotheses, alone)


@both_norms
@alphas
@pytest.mark.parametrize("width", [1, 4, 40])
def test_hypotheses_are_distinct_sorted_and_end_in_time(norm, alpha, width, searches):
    """Also where the beam is wider than there are words."""
    for model, source_BS in searches(norm):
        for hypotheses, cap in zip(beam_search(model, source_BS, width, alpha, CAPS), CAPS, strict=True):
            assert 1 <= len(hypotheses) <= width
            for hypothesis in hypotheses:
                assert_well_formed(hypothesis.tokens, cap)
                assert math.isfinite(hypothesis.score)
            assert len({tuple(hypothesis.tokens) for hypothesis in hypotheses}) == len(hypotheses)
            scores = [hypothesis.score for hypothesis in hypotheses]
            assert scores == sorted(scores, reverse=True)


@pytest.mark.thorough
@both_norms
@alphas
@pytest.mark.parametrize("n_best", [1, 2])
def test_hypotheses_that_could_not_be_among_the_best_do_not_matter(norm, alpha, n_best, searches):
    """They are followed no further; the search with lists follows all, until all of a beam have ended."""
    for model, source_BS in searches(norm):
        together = beam_search(model, source_BS, 4, alpha, CAPS, n_best)
        for hypotheses, source_S, cap in zip(together, source_BS, CAPS, strict=True):
            (alone,) = beam_search(model, source_S[None], 4, alpha, [cap], n_best)
            expected = plain_beam_search(model, source_S[None], 4, alpha, cap)[:n_best]
            for found in (hypotheses, alone):
                assert [hypothesis.tokens for hypothesis in found] == [tokens for tokens, _ in expected]
                scores = [score for _, score in expected]
                assert [hypothesis.score for hypothesis in found] == pytest.approx(scores, rel=1e-5)


@pytest.mark.thorough
@both_norms
@alphas
def test_more_patience_finds_no_worse_and_takes_no_fewer_steps(norm, alpha, searches, monkeypatch):
    steps = []
    for model, source_BS in searches(norm):

        def counted(token_BW, state, step=model.step):
            steps[-1] += 1
            return step(token_BW, state)

        monkeypatch.setattr(model, "step", counted)
        for source_S, cap in zip(source_BS, CAPS, strict=True):
            scores = []
            for patience in (0.5, 1.0, 2.0, 0.0):
                steps.append(0)
                [[best]] = beam_search(model, source_S[None], 4, alpha, [cap], 1, patience)
                scores.append(best.score)
            assert scores == sorted(scores)
    of_each = [sum(steps[i::4]) for i in range(4)]
    assert of_each == sorted(of_each)
    assert of_each[0] < of_each[3]


@pytest.mark.thorough
def test_fewer_hypotheses_are_followed_where_fewer_are_wanted(searches, monkeypatch):
    """So that the test before this one says something."""
    followed = []
    for model, source_BS in searches("post"):

        def counted(token_BW, state, step=model.step):
            followed[-1] += token_BW.shape[1]
            return step(token_BW, state)

        monkeypatch.setattr(model, "step", counted)
        for n_best in (4, 2, 1):
            followed.append(0)
            for source_S, cap in zip(source_BS, CAPS, strict=True):
                beam_search(model, source_S[None], 4, 0.6, [cap], n_best)
    assert sum(followed[::3]) > sum(followed[1::3]) > sum(followed[2::3])


@pytest.mark.thorough
@both_norms
@pytest.mark.parametrize("keep_above", [0.0, *thorough(0.5), 1.0])
def test_when_settled_sentences_leave_does_not_matter(norm, keep_above, searches, monkeypatch):
    for model, source_BS in searches(norm):
        expected = [greedy(model, source_BS, CAPS), *beam_search(model, source_BS, 4, 0.6, CAPS)]
        best = beam_search(model, source_BS, 4, 0.6, CAPS, n_best=1)
        with monkeypatch.context() as changed:
            for module in (sampling, search):
                changed.setattr(module, "KEEP_ABOVE", keep_above)
            found = [greedy(model, source_BS, CAPS), *beam_search(model, source_BS, 4, 0.6, CAPS)]
            best_found = beam_search(model, source_BS, 4, 0.6, CAPS, n_best=1)
        for ours, theirs in zip([*found, *best_found], [*expected, *best], strict=True):
            assert_same(ours, theirs)


def test_beams_compete(searches):
    """So that the tests here say something: a wider beam often finds better than greedy does."""
    better = 0
    for model, source_BS in searches("post"):
        wide, narrow = beam_search(model, source_BS, 4, 0.0, CAPS), greedy(model, source_BS, CAPS)
        better += sum(w[0].log_prob > n.log_prob + 1e-3 for w, n in zip(wide, narrow, strict=True))
    assert better >= 5


def test_no_sentences_have_no_hypotheses(tiny_model):
    none_BS = torch.empty(0, 3, dtype=torch.int64)
    assert greedy(tiny_model(), none_BS, []) == []
    assert beam_search(tiny_model(), none_BS, 4, 0.6, []) == []
