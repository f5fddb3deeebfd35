"""Codes of languages, and what spaces mean in them."""

import pytest

from transformer_mt.base.languages import has_spaces, short_code, split_units


@pytest.mark.parametrize(
    ("code", "short"),
    [
        *[("de", "de"), ("DE", "de"), ("deu_Latn", "deu"), ("", "")],
        *[("zh", "zh"), ("zh-CN", "zh"), ("zho_Hans", "zh"), ("cmn", "zh"), ("yue_Hant", "zh")],
        *[("jpn_Jpan", "ja"), ("ja_JP", "ja"), ("kor_Hang", "ko"), ("tha_Thai", "th")],
        *[("lao_Laoo", "lo"), ("khm_Khmr", "km"), ("mya_Mymr", "my")],
    ],
)
def test_a_code_is_known_however_it_is_written(code, short):
    assert short_code(code) == short


def test_only_these_are_written_without_spaces():
    assert [code for code in ("zh", "ja", "ko", "th", "lo", "km", "my") if has_spaces(code)] == ["ko"]
    assert has_spaces("") and has_spaces("de") and not has_spaces("zho_Hant")


def test_units_are_words_or_characters_without_their_spaces():
    assert split_units("我 喜欢 IBM。", spaced=True) == ["我", "喜欢", "IBM。"]
    assert split_units(" 我 喜欢\tIBM。", spaced=False) == ["我", "喜", "欢", "I", "B", "M", "。"]
