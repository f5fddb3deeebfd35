"""The score of a pair is what the search that found it said."""

import math

import pytest
from helpers.messages import message
from helpers.tiny import demo_pairs

from transformer_mt.base.errors import TokenizerError, TranslationError
from transformer_mt.decoding.scorer import Scorer
from transformer_mt.settings.search_settings import DecodingConfig

SENTENCES, REFERENCES = zip(*demo_pairs(8), strict=True)


@pytest.fixture(scope="module")
def scorer(model_dir):
    return Scorer.load(model_dir, "cpu")


@pytest.mark.thorough
@pytest.mark.parametrize("decoding", [{"beam_size": 1}, {"beam_size": 4, "n_best": 4}, {"sampling": True, "n_best": 3}])
def test_what_was_translated_is_scored_as_the_search_said(translator, scorer, decoding):
    settings = DecodingConfig.model_validate({"max_extra_length": 10} | decoding)
    for source, found in zip(SENTENCES, translator.translations(SENTENCES, settings), strict=True):
        scores = scorer.score_pieces([source] * len(found), [translation.pieces for translation in found])
        for translation, score in zip(found, scores, strict=True):
            assert score.log_prob == pytest.approx(translation.log_prob, abs=1e-4)
            assert score.pieces == [*translation.pieces, "</s>"]


def test_a_text_is_scored_by_the_pieces_that_the_tokenizer_cuts_it_into(scorer):
    pieces = [scorer.tokenizer.target_pieces(ids[:-1]) for ids in scorer.tokenizer.encode_target(REFERENCES)]
    by_text, by_pieces = scorer.score(SENTENCES, REFERENCES), scorer.score_pieces(SENTENCES, pieces)
    assert by_text == by_pieces
    other = [*pieces[0][:-1], *scorer.tokenizer.target_pieces([4 + byte for byte in pieces[0][-1].encode()])]
    [by_bytes] = scorer.score_pieces(SENTENCES[:1], [other])
    assert by_bytes.log_prob != pytest.approx(by_text[0].log_prob, abs=1e-2)


def test_sum_and_mean_are_those_of_the_pieces(scorer):
    for score in scorer.score(SENTENCES, REFERENCES):
        assert len(score.pieces) == len(score.log_probs) > 1
        assert score.log_prob == pytest.approx(math.fsum(score.log_probs))
        assert score.average == pytest.approx(score.log_prob / len(score.pieces))
        assert all(log_prob < 0.0 for log_prob in score.log_probs)


def test_the_score_of_a_pair_does_not_depend_on_the_others(scorer):
    together = scorer.score(SENTENCES, REFERENCES)
    for source, target, score in zip(SENTENCES, REFERENCES, together, strict=True):
        [alone] = scorer.score([source], [target])
        assert alone.log_probs == pytest.approx(score.log_probs, abs=1e-5)
    assert len({score.log_prob for score in together}) == len(together)


def test_two_blanks_are_0_and_one_is_the_end_of_a_sentence(scorer):
    scores = scorer.score(["", "A dog.", " ", "A dog."], ["\t", "", "Ein Hund.", "Ein Hund."])
    assert (scores[0].log_prob, scores[0].average, scores[0].pieces) == (0.0, 0.0, [])
    assert scores[1].pieces == ["</s>"]
    assert scores[2].pieces == scores[3].pieces
    assert scores[2].log_probs != scores[3].log_probs
    assert scores[1].log_prob < 0.0


def test_a_text_beyond_the_positions_names_its_line_and_side(scorer):
    endless = "dog " * 1100
    with pytest.raises(TranslationError, match=message("scored-line-too-long", "source", "6", "2", "1,024")):
        scorer.score(["a", endless], ["a", "b"], line_numbers=[5, 6])
    with pytest.raises(TranslationError, match=message("scored-line-too-long", "target", "2")):
        scorer.score(["a", "b"], ["a", endless])


def test_mistakes_of_the_caller_are_errors(scorer):
    with pytest.raises(TypeError, match="sources: give a list of texts"):
        scorer.score("A dog.", ["Ein Hund."])
    with pytest.raises(TypeError, match="targets: give a list of texts"):
        scorer.score(["A dog."], "Ein Hund.")
    with pytest.raises(TypeError, match="sources: give a list of texts"):
        scorer.score([None], ["Ein Hund."])
    with pytest.raises(TypeError, match="targets: give a list of texts"):
        scorer.score(["A", "B"], ["Ein Hund.", 1])
    with pytest.raises(TypeError, match=r"targets\[0\]: give a list"):
        scorer.score_pieces(["A"], ["A"])
    with pytest.raises(TypeError, match=r"targets\[0\]: give a list"):
        scorer.score_pieces(["A"], [["A", None]])
    with pytest.raises(ValueError):
        scorer.score(["A dog."], [])
    with pytest.raises(TokenizerError, match=message("not-target-piece", "Grossmutterhund")):
        scorer.score_pieces(["A dog."], [["Grossmutterhund"]])
