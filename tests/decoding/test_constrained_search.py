"""The search for translations with certain phrases: against a search of everything, and whatever the model."""

import random
from collections import Counter

import pytest
import torch
from helpers.plain_search import (
    CAPS,
    VOCAB_SIZE,
    assert_same,
    assert_well_formed,
    every_translation,
    penalised,
    teacher_forced,
)
from helpers.thorough import pairwise

from transformer_mt.base.languages import EOS, PAD
from transformer_mt.decoding.constrained_search import constrained_search, ends_word, has_phrases
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.settings.search_settings import DecodingConfig

PIECES = ["<pad>", "<unk>", "<s>", "</s>", "▁Haus", "es", "▁der", "."]
ENDS_WORD = list(map(ends_word, PIECES))
HOUSE, ES, THE, DOT = range(4, 8)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def search(model, source_BS, caps, phrases, width, prefixes=(), **settings):
    decoding = DecodingConfig(
        **{"beam_size": width, "n_best": width, "patience": 0.0, "length_penalty": 0.6} | settings
    )
    constraints = Constraints(caps, list(prefixes))
    return constrained_search(model, source_BS, constraints, decoding, phrases, ENDS_WORD)


def plain_has(tokens, phrases, start=0):
    """Whether the phrases stand in a translation, none inside another, and each ends where a word ends."""
    if not phrases:
        return True
    words = tuple(tokens)
    for number, phrase in enumerate(phrases):
        for pieces in map(tuple, phrase):
            for at in range(start, len(words) - len(pieces)):
                end = at + len(pieces)
                is_there = words[at:end] == pieces and ENDS_WORD[words[end]]
                if is_there and plain_has(tokens, phrases[:number] + phrases[number + 1 :], end):
                    return True
    return False


EXAMPLES = [
    [[[HOUSE]]],
    [[[HOUSE, ES]]],
    [[[HOUSE]], [[HOUSE]]],
    [[[THE, HOUSE], [THE, ES]]],
    [[[HOUSE, ES], [THE]], [[HOUSE]]],
]


def test_a_word_ends_before_a_space_a_mark_and_the_end_but_not_before_letters_and_bytes():
    pieces = ["▁Haus", "▁", ".", "</s>", "-", "我", "es", "0", "<0xC3>", "<keep1>", "\u0301"]
    assert list(map(ends_word, pieces)) == [True] * 6 + [False] * 5


@pytest.mark.thorough
@pytest.mark.parametrize("phrases", EXAMPLES)
def test_a_beam_of_everything_finds_the_best_that_has_the_phrases(phrases, tiny_model, sources):
    cap = 4
    allowed = [tokens for tokens in every_translation(cap) if plain_has(tokens, phrases)]
    for seed in range(3):
        model, source_BS = tiny_model(VOCAB_SIZE, seed), sources(2, 4, VOCAB_SIZE, seed)
        found = search(model, source_BS, [cap, cap], [phrases, phrases], 400, n_best=3)
        for hypotheses, source_S in zip(found, source_BS, strict=True):
            scores = [penalised(teacher_forced(model, source_S[None], t), len(t), 0.6) for t in allowed]
            expected = sorted(zip(scores, allowed, strict=True), reverse=True)[:3]
            assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for _, tokens in expected]
            assert [each.score for each in hypotheses] == pytest.approx([score for score, _ in expected], rel=1e-5)


def random_phrases(drawn):
    """Up to three phrases of one to three pieces, of which the first begins a word."""
    alternatives = [
        [drawn.choice([HOUSE, THE]), *drawn.choices([HOUSE, ES, THE, DOT], k=drawn.randrange(3))] for _ in range(5)
    ]
    return [drawn.sample(alternatives, drawn.randint(1, 2)) for _ in range(drawn.randrange(1, 4))]


@pairwise(width=[2, 3, 8], patience=[0.0, 1.0], prefix=[(), (THE, HOUSE)])
def test_every_hypothesis_has_the_phrases_if_they_fit(width, patience, prefix, tiny_model, sources):
    drawn = random.Random(width)
    for seed in range(4):
        model, source_BS = tiny_model(VOCAB_SIZE, seed), sources(4, 6, VOCAB_SIZE, seed)
        phrases = [random_phrases(drawn) for _ in range(4)]
        caps = [len(prefix) + sum(min(map(len, phrase)) for phrase in of_one) + 1 + seed % 3 for of_one in phrases]
        found = search(model, source_BS, caps, phrases, width, [list(prefix)] * 4, patience=patience)
        for hypotheses, of_one, cap, source_S in zip(found, phrases, caps, source_BS, strict=True):
            assert hypotheses
            for hypothesis in hypotheses:
                assert_well_formed(hypothesis.tokens, cap)
                assert plain_has(hypothesis.tokens, of_one), (hypothesis.tokens, of_one)
                assert has_phrases(hypothesis.tokens, of_one, ENDS_WORD)
                assert tuple(hypothesis.tokens[: len(prefix)]) == prefix
                log_prob = teacher_forced(model, source_S[None], hypothesis.tokens)
                assert hypothesis.log_prob == pytest.approx(log_prob, rel=1e-5)


def test_a_phrase_may_begin_inside_the_beginning_of_itself():
    phrases = [[[THE, THE, HOUSE]], [[THE, DOT]]]
    assert has_phrases([THE, THE, THE, HOUSE, THE, DOT, EOS], phrases, ENDS_WORD)
    assert not has_phrases([THE, THE, THE, HOUSE, DOT, EOS], phrases, ENDS_WORD)
    assert not has_phrases([THE, THE, HOUSE, ES, THE, DOT, EOS], phrases, ENDS_WORD)


def test_at_the_limit_it_has_as_much_as_fits(tiny_model, sources):
    model, source_BS = tiny_model(VOCAB_SIZE, 1), sources(3, 4, VOCAB_SIZE, 1)
    found = search(model, source_BS, [1, 2, 3], [[[[THE, HOUSE, ES]]]] * 3, 2)
    assert [hypotheses[0].tokens for hypotheses in found] == [[EOS], [THE, EOS], [THE, HOUSE, EOS]]


def test_where_nothing_else_is_left_a_translation_ends_without_its_phrases(tiny_model, sources):
    model, source_BS = tiny_model(VOCAB_SIZE, 1), sources(2, 4, VOCAB_SIZE, 1)
    decoding, constraints = DecodingConfig(beam_size=2), Constraints([20, 20], no_repeat_ngram=1)
    found = constrained_search(model, source_BS, constraints, decoding, [[[[HOUSE]], [[HOUSE]]]] * 2, ENDS_WORD)
    for [hypothesis] in found:
        assert hypothesis.tokens[-1] == EOS
        assert max(Counter(hypothesis.tokens).values()) == 1


@pytest.mark.thorough
def test_a_sentence_is_translated_as_if_it_were_alone(tiny_model, sources):
    drawn = random.Random(1)
    for seed in range(6):
        model, source_BS = tiny_model(VOCAB_SIZE, seed), sources(len(CAPS), 6, VOCAB_SIZE, seed)
        phrases = [random_phrases(drawn) for _ in CAPS]
        together = search(model, source_BS, CAPS, phrases, 3, patience=1.0)
        for number, (found, source_S) in enumerate(zip(together, source_BS, strict=True)):
            source_1S = source_S[None, source_S != PAD]
            assert_same(found, search(model, source_1S, [CAPS[number]], [phrases[number]], 3, patience=1.0)[0])


def test_numbers_that_are_not_finite_give_no_translation(tiny_model, sources):
    model, source_BS = tiny_model(VOCAB_SIZE, 1), sources(2, 4, VOCAB_SIZE, 1)
    model.output_embedding.weight.fill_(float("nan"))
    assert search(model, source_BS, [5, 5], [[[[HOUSE]]]] * 2, 2) == [[], []]
