"""Minimum Bayes risk decoding equals its definition, by sacreBLEU's scores of single sentences."""

import math

import numpy as np
import pytest
import sacrebleu
from helpers.messages import message

from transformer_mt.decoding.mbr import chrf_of_all, least_risk
from transformer_mt.decoding.translation import Translation
from transformer_mt.settings.search_settings import DecodingConfig

TEXTS = ["Der Hund schläft dort.", "Der Hund schlief dort.", "Ein Hund schläft.", "", "Da", "aaaaaaa", "Der  Hund 犬"]
TEXTS += [
    "der der der Hund der",
    "der der Hund, der der der Hund der der Hund &amp; der",
    "x-1 y",
    "Hund Der dort schläft ein",
]


def test_utilities_of_all_pairs_are_those_of_sacrebleu():
    metric = sacrebleu.CHRF()
    expected = [[metric.sentence_score(text, [other]).score for other in TEXTS] for text in TEXTS]
    np.testing.assert_allclose(chrf_of_all(TEXTS), expected, atol=1e-9)


def test_expected_utilities_are_weighted_means_over_all_candidates():
    texts = [*TEXTS[:3], TEXTS[0], TEXTS[2], TEXTS[0]]
    weights = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    metric = sacrebleu.CHRF()
    expected = [
        sum(weight * metric.sentence_score(text, [other]).score for weight, other in zip(weights, texts, strict=True))
        / sum(weights)
        for text in texts
    ]
    candidates = [candidate(text, weight) for text, weight in zip(texts, weights, strict=True)]
    found = least_risk(candidates, DecodingConfig(mbr_candidates=6, n_best=6))
    assert {each.text: each.score for each in found} == pytest.approx(dict(zip(texts, expected, strict=True)))


def candidate(text: str, probability: float) -> Translation:
    return Translation(text, -1.0, math.log(probability))


def test_the_candidate_most_like_the_others_wins_against_the_most_probable():
    candidates = [candidate("something else", 0.4), candidate("the old house here", 0.2)]
    candidates += [candidate("the old house there", 0.2), candidate("the old house now", 0.19)]
    found = least_risk(candidates, DecodingConfig(mbr_candidates=4, n_best=3))
    assert found[0].text.startswith("the old") and len(found) == 3
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_samples_count_the_same_and_hypotheses_by_their_probabilities():
    candidates = [candidate("a b c d", 0.9), candidate("x y z", 0.04), candidate("x y z", 0.04)]
    [of_beam] = least_risk(candidates, DecodingConfig(mbr_candidates=3))
    [of_samples] = least_risk(candidates, DecodingConfig(mbr_candidates=3, sampling=True))
    assert (of_beam.text, of_samples.text) == ("a b c d", "x y z")


def test_nothing_is_chosen_from_nothing():
    assert least_risk([], DecodingConfig(mbr_candidates=2)) == []


@pytest.mark.parametrize("sampling", [True, False])
def test_a_translator_takes_the_candidate_of_least_risk(translator, sampling):
    lines = ["The child is sleeping.", "", "She sees the old house."]
    of_search = DecodingConfig(sampling=sampling, beam_size=1 if sampling else 6, n_best=6, seed=3)
    decoding = DecodingConfig(sampling=sampling, beam_size=1, mbr_candidates=6, seed=3)
    expected = [
        least_risk(found, decoding)[0].text if line else ""
        for line, found in zip(lines, translator.translations(lines, of_search), strict=True)
    ]
    found = translator.translations(lines, decoding)
    assert [each[0].text for each in found] == expected
    assert [len(each) for each in found] == [1, 1, 1]


def test_the_score_of_a_split_line_is_the_mean_of_its_parts(translator):
    lines = ["The child is sleeping.", "She sees the old house."]
    decoding = DecodingConfig(mbr_candidates=4, split_sentences="always")
    first, second, both = (best for best, *_ in translator.translations([*lines, " ".join(lines)], decoding))
    assert both.num_parts == 2 and both.text == f"{first.text} {second.text}"
    assert both.score == pytest.approx((first.score + second.score) / 2)
    assert both.log_prob == pytest.approx(first.log_prob + second.log_prob)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mbr_candidates": 1}, ("one-mbr-candidate",)),
        ({"mbr_candidates": 4, "n_best": 5}, ("n-best-above-candidates", "n_best=5", "mbr_candidates=4")),
    ],
)
def test_settings_without_effect_are_refused(changes, expected):
    with pytest.raises(ValueError, match=message(*expected)):
        DecodingConfig(**changes)
