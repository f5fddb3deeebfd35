"""Tags before sources, and warnings of sets that begin otherwise than the training corpora."""

import pytest

from transformer_mt.preparing.text_warnings import tag_warnings
from transformer_mt.settings.corpus_settings import CorpusConfig
from transformer_mt.text.tokenizer import tagged

TAGS = {"to_de": "<2de>", "to_en": "<2en>", "plain": None}
TO_DE, TO_EN, PLAIN = ({"name": name, "path": "x", "tag": tag} for name, tag in TAGS.items())


def corpus(*train: dict[str, str | None], valid: object = "v", test: object = "t") -> CorpusConfig:
    languages = {"source_language": "en", "target_language": "de"}
    return CorpusConfig.model_validate({**languages, "train": list(train), "valid": valid, "test": {"news": test}})


def test_a_tag_comes_before_a_source_that_is_not_blank() -> None:
    assert tagged("<bt> <2de>", "A dog.") == "<bt> <2de> A dog."
    assert tagged(None, "A dog.") == "A dog."
    assert tagged("<2de>", " ") == " ", "so that it is left out as blank"


@pytest.mark.parametrize(
    ("train", "valid", "test", "told"),
    [
        ([PLAIN], "v", "t", []),
        ([TO_DE, TO_EN], {"path": "v", "tag": "<2de>"}, {"path": "t", "tag": "<2en>"}, []),
        ([TO_DE, TO_EN], "v", {"path": "t", "tag": "<2en>"}, ["corpus.valid has no tag, but every"]),
        ([TO_DE, PLAIN], "v", "t", []),
        (
            [TO_DE],
            {"path": "v", "tag": "<2de>"},
            {"path": "t", "tag": "<2fr>"},
            ["corpus.test.news has the tag"],
        ),
        ([PLAIN], {"path": "v", "tag": "<2de>"}, "t", ["corpus.valid has the tag <2de>, which is not a tag"]),
    ],
)
def test_sets_that_begin_otherwise_than_training_are_told(
    train: list[dict[str, str | None]], valid: object, test: object, told: list[str]
) -> None:
    found = list(tag_warnings(corpus(*train, valid=valid, test=test)))
    assert len(found) == len(told)
    for warning, beginning in zip(found, told, strict=True):
        assert warning.startswith(beginning)


def test_all_tokens_of_all_sets_are_pieces() -> None:
    config = corpus({**TO_DE, "name": "back", "tag": "<bt> <2de>"}, TO_DE, PLAIN, valid={"path": "v", "tag": "<2fr>"})
    assert config.tags == ("<bt>", "<2de>", "<2fr>")
    assert corpus(PLAIN).tags == ()


def test_prepared_data_do_not_depend_on_weights() -> None:
    weighted = corpus({**TO_DE, "weight": 2.0}, TO_EN)
    assert weighted != corpus(TO_DE, TO_EN)
    assert weighted.without_weights == corpus(TO_DE, TO_EN)
