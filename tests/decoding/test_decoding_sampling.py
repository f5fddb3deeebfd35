"""Samples follow the model's distribution, and depend on seed, number and rank alone."""

import itertools
import math
from collections import Counter

import pytest
import torch
from helpers.plain_search import CAPS, VOCAB_SIZE, WORDS, assert_same, every_translation, plain_greedy, teacher_forced
from helpers.thorough import thorough

from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.sampling import draw, sample, uniform_numbers
from transformer_mt.settings.search_settings import DecodingConfig

NUMBERS = [7, 1, 2, 300, 4, 5, 6, 0]

SEEDS = range(4)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def searches(tiny_model, sources):
    """Models, each with eight sources; translations may be as long as CAPS."""
    return [(tiny_model(VOCAB_SIZE, seed), sources(len(CAPS), 6, VOCAB_SIZE, seed)) for seed in SEEDS]


def free(caps=CAPS):
    return Constraints(caps, [[] for _ in caps])


def settings(**values):
    return DecodingConfig(sampling=True, **values)


def drawn_evenly(probs, temperature=1.0, top_k=0, top_p=1.0, draws=10_000):
    """The share of each piece where the uniform numbers are evenly spaced."""
    uniform_1W = (torch.arange(draws, dtype=torch.float64)[None] + 0.5) / draws
    log_probs_1WV = torch.tensor(probs).log().expand(1, draws, -1)
    counts = Counter(draw(log_probs_1WV, uniform_1W, temperature, top_k, top_p)[0].tolist())
    return [counts[piece] / draws for piece in range(len(probs))]


# One piece


def test_pieces_come_as_often_as_they_are_probable():
    assert drawn_evenly([0.1, 0.0, 0.4, 0.3, 0.2]) == pytest.approx([0.1, 0.0, 0.4, 0.3, 0.2], abs=1e-4)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_temperature_is_an_inverse_power_of_probabilities(temperature):
    powers = [p ** (1 / temperature) for p in (0.1, 0.4, 0.3, 0.2)]
    expected = [power / sum(powers) for power in powers]
    assert drawn_evenly([0.1, 0.4, 0.3, 0.2], temperature) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("temperature", [1e-2, 1e-6])
def test_near_zero_temperature_only_the_most_probable_is_drawn(temperature):
    assert drawn_evenly([0.1, 0.0, 0.4, 0.3], temperature) == [0, 0, 1, 0]


def test_the_hotter_the_more_even():
    assert drawn_evenly([0.1, 0.0, 0.6, 0.3], 1e9) == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=1e-4)


@pytest.mark.parametrize(
    ("top_k", "top_p", "expected"),
    [
        (1, 1.0, [0, 1, 0, 0]),
        (2, 1.0, [0, 0.4 / 0.7, 0.3 / 0.7, 0]),
        (4, 1.0, [0.1, 0.4, 0.3, 0.2]),
        (99, 1.0, [0.1, 0.4, 0.3, 0.2]),
        (0, 1e-9, [0, 1, 0, 0]),
        (0, 0.39, [0, 1, 0, 0]),
        (0, 0.41, [0, 0.4 / 0.7, 0.3 / 0.7, 0]),
        (0, 0.75, [0, 0.4 / 0.9, 0.3 / 0.9, 0.2 / 0.9]),
        # Of what top_k leaves: 0.4 is more than half of 0.7, and less than half of all.
        (2, 0.5, [0, 1, 0, 0]),
        (0, 0.5, [0, 0.4 / 0.7, 0.3 / 0.7, 0]),
    ],
)
def test_only_the_most_probable_are_drawn(top_k, top_p, expected):
    assert drawn_evenly([0.1, 0.4, 0.3, 0.2], 1.0, top_k, top_p) == pytest.approx(expected, abs=1e-4)


def test_top_p_is_of_what_temperature_makes():
    # Squares are 0.01, 0.16, 0.09, 0.04 of 0.3: the first of them more than half.
    assert drawn_evenly([0.1, 0.4, 0.3, 0.2], temperature=0.5, top_p=0.5) == [0, 1, 0, 0]


def test_of_equals_top_k_takes_no_more():
    assert sum(share > 0 for share in drawn_evenly([0.25] * 4, top_k=2)) == 2


def test_the_ends_of_the_interval_draw_what_is_possible():
    log_probs_1WV = torch.tensor([0.0, 0.1, 0.2, 0.7, 0.0]).log().expand(1, 2, -1)
    uniform_1W = torch.tensor([[0.0, 1 - 2**-53]], dtype=torch.float64)
    assert draw(log_probs_1WV, uniform_1W, 1.0, 0, 1.0).tolist() == [[1, 3]]


# Uniform numbers


def test_uniform_numbers_are_of_seed_sentence_and_sample():
    one_BWT = uniform_numbers(1, [5, 6], 3, 10)
    assert one_BWT.shape == (2, 3, 10)
    assert ((one_BWT >= 0) & (one_BWT < 1)).all()
    assert len(one_BWT.unique()) == one_BWT.numel()
    assert torch.equal(
        uniform_numbers(1, [9, 6, 5], 2, 4), torch.cat([uniform_numbers(1, [9], 2, 4), one_BWT.flip(0)[:, :2, :4]])
    )
    assert not torch.isin(uniform_numbers(2, [5, 6], 3, 10), one_BWT).any()


# Translations


def test_translations_come_as_often_as_they_are_probable(tiny_model, sources):
    """Pearson's chi-square of all translations of up to three pieces, where each of them is expected five times."""
    cap, copies, n_best = 3, 80, 50
    draws = copies * n_best
    model, source_1S = tiny_model(VOCAB_SIZE, 2), sources(1, 4, VOCAB_SIZE)
    source_BS = source_1S.expand(copies, -1)
    found = sample(model, source_BS, list(range(copies)), free([cap] * copies), settings(n_best=n_best))
    counts = Counter(tuple(hypothesis.tokens) for hypotheses in found for hypothesis in hypotheses)
    expected = {}
    for tokens in every_translation(cap):
        log_probs_TV = model(source_1S, torch.tensor([[BOS, *tokens[:-1]]]))[0]
        log_probs_TV[:, [PAD, BOS]] = -math.inf
        probs_TV = log_probs_TV.softmax(dim=-1)
        free_pieces = tokens[: cap - 1]  # at the last position EOS alone may stand
        expected[tuple(tokens)] = draws * math.prod(probs_TV[t, token].item() for t, token in enumerate(free_pieces))
    assert sum(expected.values()) == pytest.approx(draws)
    assert counts.keys() <= expected.keys()
    frequent = [tokens for tokens, count in expected.items() if count >= 5]
    assert len(frequent) > 6
    chi_square = sum((counts[tokens] - expected[tokens]) ** 2 / expected[tokens] for tokens in frequent)
    assert chi_square < len(frequent) + 4 * math.sqrt(2 * len(frequent))  # mean and four standard deviations


@pytest.mark.parametrize("values", [{"temperature": 1e-6}, *thorough({"top_k": 1}, {"top_p": 1e-9})])
def test_samples_of_the_most_probable_are_greedy(values, searches):
    for model, source_BS in searches:
        found = sample(model, source_BS, NUMBERS, free(), settings(n_best=2, **values))
        for hypotheses, source_S, cap in zip(found, source_BS, CAPS, strict=True):
            expected = plain_greedy(model, source_S[None], cap)
            assert [hypothesis.tokens for hypothesis in hypotheses] == [expected, expected]


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["gnmt", *thorough("average", "none")])
@pytest.mark.parametrize("values", [{}, {"temperature": 2.0, "top_k": 3, "top_p": 0.9}])
def test_scores_are_the_models_own(form, values, searches):
    """Whatever temperature, top_k and top_p."""
    for model, source_BS in searches:
        decoding = settings(n_best=3, length_penalty=0.8, length_penalty_form=form, **values)
        found = sample(model, source_BS, NUMBERS, free(), decoding)
        for hypotheses, source_S, cap in zip(found, source_BS, CAPS, strict=True):
            assert len(hypotheses) == 3
            scores = [hypothesis.score for hypothesis in hypotheses]
            assert scores == sorted(scores, reverse=True)
            for hypothesis in hypotheses:
                length = len(hypothesis.tokens)
                assert hypothesis.tokens.index(EOS) == length - 1 < cap
                log_prob = teacher_forced(model, source_S[None], hypothesis.tokens)
                penalty = {"gnmt": ((5 + length) / 6) ** 0.8, "average": length**0.8, "none": 1}[form]
                assert hypothesis.log_prob == pytest.approx(log_prob, rel=1e-5)
                assert hypothesis.score == pytest.approx(log_prob / penalty, rel=1e-5)


def test_a_sentence_is_sampled_as_if_it_were_alone(searches):
    decoding = settings(n_best=3)
    for model, source_BS in searches:
        together = sample(model, source_BS, NUMBERS, free(), decoding)
        for hypotheses, source_S, cap, number in zip(together, source_BS, CAPS, NUMBERS, strict=True):
            (alone,) = sample(model, source_S[None, source_S != PAD], [number], free([cap]), decoding)
            assert_same(hypotheses, alone)


def test_a_sample_does_not_depend_on_how_many_others_there_are(searches):
    for model, source_BS in searches:
        few = sample(model, source_BS, NUMBERS, free(), settings(n_best=1))
        many = sample(model, source_BS, NUMBERS, free(), settings(n_best=5))
        for (first,), hypotheses in zip(few, many, strict=True):
            assert first.tokens in [hypothesis.tokens for hypothesis in hypotheses]


def test_other_seeds_numbers_and_ranks_give_other_samples(searches):
    model, source_BS = searches[0]
    same_BS = source_BS[:1].expand(8, -1)

    def tokens(numbers, **values):
        found = sample(model, same_BS, numbers, free([12] * 8), settings(**values))
        return [hypothesis.tokens for hypotheses in found for hypothesis in hypotheses]

    usual = tokens(NUMBERS)
    assert usual == tokens(NUMBERS)
    assert tokens([3] * 8) == [tokens([3] * 8)[0]] * 8
    for others in (tokens(NUMBERS, seed=2), tokens([number + 1000 for number in NUMBERS])):
        assert sum(one != other for one, other in zip(usual, others, strict=True)) >= 4
    assert len({tuple(sample) for sample in tokens([3] * 8, n_best=10)}) >= 3


def test_samples_keep_to_the_constraints(searches):
    prefixes = [[4, 5, 4, 5], [], [6], [], [7, 7, 7], [], [WORDS[0]], [4]]
    constraints = Constraints(CAPS, prefixes, no_repeat_ngram=2, min_length=4)
    for model, source_BS in searches:
        found = sample(model, source_BS, NUMBERS, constraints, settings(n_best=4, temperature=2.0))
        for hypotheses, prefix, cap in zip(found, prefixes, CAPS, strict=True):
            for words in (hypothesis.tokens[:-1] for hypothesis in hypotheses):
                assert words[: len(prefix)] == prefix[: cap - 1]
                assert len(words) >= min(4, cap - 1)
                new = itertools.pairwise(words[max(len(prefix) - 1, 0) :])
                assert len(set(new)) == max(len(words) - max(len(prefix) - 1, 0) - 1, 0)


def test_no_sentences_have_no_samples(tiny_model):
    assert sample(tiny_model(), torch.empty(0, 3, dtype=torch.int64), [], free([]), settings(n_best=2)) == []
