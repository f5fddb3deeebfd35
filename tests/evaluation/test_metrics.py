"""Scores are sacreBLEU's, and what cannot be scored is refused."""

import math
import os
import signal

import pytest
import sacrebleu
from helpers.messages import message
from sacrebleu.tokenizers import tokenizer_ja_mecab

from transformer_mt.base.errors import EvaluationError, UserError
from transformer_mt.base.system import CAN_FORK
from transformer_mt.evaluation import metrics
from transformer_mt.evaluation.metrics import (
    check_tokeniser,
    corpus_score,
    language_warning,
    score_corpus,
    tokenised_warning,
)

HYPOTHESES = ["The dog, it sleeps here.", "A cat sees the big house.", "", "He has not come to us today."]
REFERENCES = ["The dog sleeps here.", "The cat sees a big house.", "Yes.", "He did not come to us today."]
OTHERS = ["The dog is asleep here.", "A cat sees the large house.", "Indeed.", "Today he did not come to us."]


def test_scores_are_those_computed_by_hand():
    # Of 5, 4, 3, 2 n-grams 4, 3, 2, 1 match; one word of five has to be replaced.
    scores = {name: score.value for name, score in score_corpus(["a b c d e"], [["a b c d f"]]).items()}
    assert scores["BLEU"] == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4))
    assert scores["TER"] == pytest.approx(20)
    # Nothing is wrong but the length, 4 words of 5.
    assert corpus_score("bleu", ["a b c d"], ["a b c d e"]) == pytest.approx(100 * math.exp(1 - 5 / 4))


@pytest.mark.parametrize("references", [[REFERENCES], [REFERENCES, OTHERS], [OTHERS, REFERENCES, HYPOTHESES]])
def test_scores_and_signatures_are_sacrebleus(references):
    theirs = [sacrebleu.BLEU(), sacrebleu.CHRF(), sacrebleu.TER()]
    expected = [(metric.corpus_score(HYPOTHESES, references), metric.get_signature()) for metric in theirs]
    found = score_corpus(HYPOTHESES, references, "en")
    assert [*found] == ["BLEU", "chrF2", "TER"]
    for score, (value, signature) in zip(found.values(), expected, strict=True):
        assert (score.value, score.signature) == (value.score, str(signature))
        assert f"nrefs:{len(references)}|" in score.signature


@pytest.mark.skipif(not CAN_FORK, reason="needs processes that are copies of this one")
@pytest.mark.parametrize("confidence", [False, True])
def test_several_processes_count_ter_and_the_score_is_that_of_sacrebleu(confidence, monkeypatch, tmp_path):
    hypotheses, references = HYPOTHESES * 50, [REFERENCES * 50, [*reversed(OTHERS * 50)]]
    ter = sacrebleu.TER()
    expected = ter.corpus_score(hypotheses, references, n_bootstrap=1000 if confidence else 1)
    monkeypatch.setattr(metrics, "num_cores", lambda: 2)
    count = sacrebleu.TER._compute_segment_statistics
    monkeypatch.setattr(
        sacrebleu.TER,
        "_compute_segment_statistics",
        lambda self, *line: (tmp_path / str(os.getpid())).touch() or count(self, *line),
    )
    found = score_corpus(hypotheses, references, confidence=confidence, metrics=["ter"])["TER"]
    assert (found.value, found.signature) == (expected.score, str(ter.get_signature()))
    assert not confidence or f" ± {found.interval:.2f})" in str(expected)
    assert 2 <= len(list(tmp_path.iterdir())) <= 3, "this process, and one for each core"


@pytest.mark.skipif(not CAN_FORK, reason="needs processes that are copies of this one")
def test_a_killed_process_that_counts_ter_is_explained_with_what_makes_fewer(monkeypatch):
    this, count = os.getpid(), sacrebleu.TER._compute_segment_statistics
    monkeypatch.setattr(metrics, "num_cores", lambda: 2)
    monkeypatch.setattr(
        sacrebleu.TER,
        "_compute_segment_statistics",
        lambda self, *line: count(self, *line) if os.getpid() == this else os.kill(os.getpid(), signal.SIGKILL),
    )
    with pytest.raises(UserError, match=message("worker-killed")):
        score_corpus(HYPOTHESES * 20, [REFERENCES * 20], metrics=["ter"])


def test_intervals_are_those_of_sacrebleus_bootstrap():
    hypotheses, references = [*HYPOTHESES[:2], HYPOTHESES[3]] * 5, [*REFERENCES[:2], REFERENCES[3]] * 5
    plain = score_corpus(hypotheses, [references])
    found = score_corpus(hypotheses, [references], confidence=True)
    for score, metric in zip(found.values(), (sacrebleu.BLEU(), sacrebleu.CHRF(), sacrebleu.TER()), strict=True):
        expected = str(metric.corpus_score(hypotheses, [references], n_bootstrap=1000))
        assert f" ± {score.interval:.2f})" in expected
        assert score.signature == str(metric.get_signature()) and "|bs:1000|seed:12345|" in score.signature
    assert [score.value for score in found.values()] == [score.value for score in plain.values()]
    assert all(score.interval is None and "bs:" not in score.signature for score in plain.values())


def test_there_is_an_interval_even_where_hardly_anything_is_right():
    """sacreBLEU's own mean over samples fails on these lines, of which some samples score exactly 0."""
    assert all(score.interval is not None for score in score_corpus(HYPOTHESES, [REFERENCES], confidence=True).values())


def test_an_interval_is_nothing_where_all_lines_are_alike_and_shrinks_with_more_lines():
    right, wrong = "The dog sleeps here.", "The cat sees a big house."

    def interval(repeats, hypotheses):
        return score_corpus(hypotheses * repeats, [[right, right] * repeats], confidence=True)["BLEU"].interval

    assert interval(10, [right, right]) == 0
    assert 0 < interval(400, [right, wrong]) < 0.4 * interval(25, [right, wrong])


def test_scores_of_validation_are_those_of_evaluation():
    of_evaluation = [score.value for score in score_corpus(HYPOTHESES, [REFERENCES], "de").values()]
    found = [corpus_score(metric, HYPOTHESES, REFERENCES, "de") for metric in ("bleu", "chrf", "ter")]
    assert found == of_evaluation


def test_what_an_unready_model_says_is_scored_all_the_same():
    """Words broken into pieces, or nothing at all."""
    for hypothesis in ("\u2581ab\u2581 @@", ""):
        assert 0 <= corpus_score("bleu", [hypothesis], ["The dog sleeps."], "de") < 100
        assert 0 <= corpus_score("chrf", [hypothesis], ["The dog sleeps."]) < 100


@pytest.mark.parametrize(
    ("language", "tokeniser"),
    [
        *[("de", "13a"), ("", "13a"), ("zh", "zh"), ("zh-CN", "zh"), ("zho_Hans", "zh")],
        *[(language, "char") for language in ("th", "tha_Thai", "lo", "km", "my")],
    ],
)
def test_target_language_chooses_the_tokeniser(language, tokeniser):
    score = score_corpus(["我喜欢大的房子。"], [["我喜欢小的房子。"]], language)["BLEU"]
    assert f"|tok:{tokeniser}|" in score.signature
    # 13a sees one word a sentence.
    assert (score.value > 20) == (tokeniser != "13a")
    assert corpus_score("bleu", ["我喜欢大的房子。"], ["我喜欢小的房子。"], language) == score.value


@pytest.mark.parametrize("language", ["zh", "zho_Hant", "th"])
def test_ter_splits_chinese_characters_where_the_language_has_no_spaces(language):
    hypothesis, reference = "我喜欢大的房子。", "我喜欢小的房子。"
    ter = score_corpus([hypothesis], [[reference]], language)["TER"]
    assert ter.value == pytest.approx(100 / 8) and "|norm:yes|" in ter.signature and "|asian:yes|" in ter.signature
    plain = score_corpus([hypothesis], [[reference]], "de")["TER"]
    assert plain.value == 100 and "|norm:no|" in plain.signature and "|asian:no|" in plain.signature


TEXTS = {
    "zh": "我喜欢小的房子、不喜欢 IBM 的。",
    "ja": "私は小さい家が好きです。",
    "ko": "나는 작은 집을 좋아한다.",
    "th": "ฉันชอบบ้านหลังเล็ก",
    "my": "ကျွန်ုပ်အိမ်ငယ်ကိုကြိုက်သည်",
}


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("said", ["", "de"])
def test_text_that_13a_cannot_cut_is_told_unless_its_language_is_said(language, said):
    warning = language_warning("reference", ["", TEXTS[language]], said)
    assert warning.startswith("reference looks like one of the languages zh, ja, ko, ") and "13a" in warning
    assert language_warning("reference", [TEXTS[language]], language) is None


@pytest.mark.parametrize("line", [*REFERENCES, "Он живёт в 東京.", "123 456", "", "日本, said the man on the street."])
def test_other_text_is_not_told(line):
    assert language_warning("reference", [line], "") is None


def test_missing_word_segmenter_is_named(monkeypatch):
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    with pytest.raises(EvaluationError, match=message("word-segmenter-missing", "ja_JP")):
        check_tokeniser("ja_JP")
    check_tokeniser("zh")


def test_unequal_numbers_of_lines_are_refused():
    with pytest.raises(EvaluationError, match=message("evaluated-lines-differ", "hypothesis", "3")):
        score_corpus(HYPOTHESES, [REFERENCES, OTHERS[:3]])
    with pytest.raises(EvaluationError, match=message("evaluated-lines-differ", "out.txt", "4")):
        score_corpus(HYPOTHESES[:3], [REFERENCES], names=["out.txt", "ref.txt"])
    with pytest.raises(EvaluationError, match=message("evaluated-lines-differ", "hypothesis", "3")):
        corpus_score("bleu", HYPOTHESES, REFERENCES[:3])
    with pytest.raises(EvaluationError, match=message("evaluated-lines-differ", "hypothesis", "3")):
        corpus_score("chrf", HYPOTHESES, REFERENCES[:3])


def test_nothing_to_score_is_refused():
    with pytest.raises(EvaluationError, match=message("nothing-to-score")):
        score_corpus([], [[]])
    with pytest.raises(EvaluationError, match=message("no-reference-given")):
        score_corpus(HYPOTHESES, [])


@pytest.mark.parametrize("line", ["\u2581The \u2581dog", "a\u2581b", "Sch@@ laf", "ab@@"])
def test_subword_pieces_are_refused_with_their_line(line):
    with pytest.raises(EvaluationError, match=message("subword-pieces-in-text", "hypothesis", "2")):
        score_corpus(["fine", line], [["fine", "fine"]])
    with pytest.raises(EvaluationError, match=message("subword-pieces-in-text", "reference 2", "1")):
        score_corpus(["fine"], [["fine"], [line]])


@pytest.mark.parametrize("line", ["@@ -1 +1 @@", "write to me@@home.de", "a_b", "@ @"])
def test_other_signs_are_text(line):
    assert score_corpus([line], [[line]])["TER"].value == 0


@pytest.mark.parametrize("line", ["The dog sleeps .", "Well , he said", "it &apos;s", "twenty @-@ one"])
def test_tokenised_text_is_told(line):
    assert "10 of 10 lines of the hypothesis" in (tokenised_warning("hypothesis", [line] * 10) or "")
    # A few such lines are found in any text.
    assert tokenised_warning("hypothesis", [line, *["The dog sleeps."] * 9]) is None


@pytest.mark.parametrize("line", ["The dog sleeps.", "Pourquoi ?", "3.5 and .5", "so ... on", ""])
def test_plain_text_is_not_told(line):
    assert tokenised_warning("reference", [line] * 10) is None


def test_warning_is_of_a_share_of_lines():
    assert tokenised_warning("hypothesis", []) is None
    assert tokenised_warning("hypothesis", ["a ."]).startswith("1 of 1 line of the hypothesis looks tokenised")
    assert tokenised_warning("hypothesis", ["a ."] * 2 + ["a."] * 8) is not None
